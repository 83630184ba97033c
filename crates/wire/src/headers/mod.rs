//! Typed header fields, one file per request pair or family. All names are RocketMQ's; fields that
//! proxies and hooks add to any request (`bname`, `ns`, `ReqT` …) are left alone.

pub mod client;
pub mod gantry;
pub mod group;
pub mod kv;
pub mod offset;
pub mod pop;
pub mod pull;
pub mod query;
pub mod register_broker;
pub mod reply;
pub mod send;
pub mod send_back;
pub mod topic;
pub mod transaction;

/// Declares a header. `f: T = "name"` must be there; `f: Option<T> = "name"` may be absent and is then
/// not written; `f: T = "name" default` may be absent and is always written.
macro_rules! header {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$fmeta:meta])* $field:ident : $kind:ident $(<$inner:ty>)? = $key:literal $($default:expr)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fmeta])* pub $field: $kind $(<$inner>)?,)* }

        impl $crate::Header for $name {
            fn decode(ext: &$crate::ExtFields) -> Result<Self, $crate::WireError> {
                Ok(Self { $($field: $crate::headers::header!(@read ext, $kind $(<$inner>)?, $key $(, $default)?),)* })
            }
            fn encode(&self, ext: &mut $crate::ExtFields) {
                $($crate::headers::header!(@write ext, self.$field, $kind $(<$inner>)?, $key);)*
            }
        }
    };
    (@read $ext:ident, Option<$inner:ty>, $key:literal) => { $ext.optional::<$inner>($key)? };
    (@read $ext:ident, $kind:ident, $key:literal) => { $ext.required::<$kind>($key)? };
    (@read $ext:ident, $kind:ident, $key:literal, $default:expr) => {
        match $ext.optional::<$kind>($key)? { Some(value) => value, None => $default.into() }
    };
    (@write $ext:ident, $value:expr, Option<$inner:ty>, $key:literal) => { $ext.put_opt($key, $value.as_ref()) };
    (@write $ext:ident, $value:expr, $kind:ident, $key:literal) => { $ext.put($key, &$value) };
}
pub(crate) use header;
