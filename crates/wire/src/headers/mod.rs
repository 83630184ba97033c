//! Typed header fields, one file per request pair or family.

/// Declares a header: `field: Type = "name"` is required, `field: Option<Type> = "name"` may be absent,
/// `field: bool = "name" off` is false when absent, and so on; see the arms of `field_read`.
macro_rules! header {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $kind:ident $(<$inner:ty>)? = $key:literal $($default:literal)?,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fmeta])* pub $field: $kind $(<$inner>)?,)* }

        impl $crate::Header for $name {
            #[allow(unused_variables, reason = "headers without fields")]
            fn decode(ext: &$crate::ExtFields) -> Result<Self, $crate::WireError> {
                Ok(Self { $($field: $crate::headers::header!(@read ext $kind $(<$inner>)? , $key $(, $default)?),)* })
            }
            #[allow(unused_variables, reason = "headers without fields")]
            fn encode(&self, ext: &mut $crate::ExtFields) {
                $($crate::headers::header!(@write ext, self.$field, $kind $(<$inner>)?, $key);)*
            }
        }
    };
    (@read $ext:ident Option<$inner:ty>, $key:literal) => { $ext.optional::<$inner>($key)? };
    (@read $ext:ident $kind:ident, $key:literal) => { $ext.required::<$kind>($key)? };
    (@read $ext:ident $kind:ident, $key:literal, $default:literal) => {
        match $ext.optional::<$kind>($key)? { Some(value) => value, None => $default.into() }
    };
    (@write $ext:ident, $value:expr, Option<$inner:ty>, $key:literal) => { $ext.put_opt($key, $value.as_ref()) };
    (@write $ext:ident, $value:expr, $kind:ident, $key:literal) => { $ext.put($key, &$value) };
}
pub(crate) use header;
