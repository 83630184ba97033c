//! The numbers of requests and responses. An unknown number is kept as a value.

mod request;
mod response;

pub use request::RequestCode;
pub use response::ResponseCode;

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`", $text, "` = ", $number)] $variant,)*
            /// A number without a name here.
            Unknown(i32),
        }

        impl $name {
            /// Every named code, in the order of the list.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The number on the wire.
            pub const fn code(self) -> i32 {
                match self { $($name::$variant => $number,)* $name::Unknown(n) => n }
            }

            /// The code for a number.
            pub const fn from_code(code: i32) -> Self {
                match code { $($number => $name::$variant,)* n => $name::Unknown(n) }
            }

            /// The usual upper-case name; `UNKNOWN` for the rest.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* $name::Unknown(_) => "UNKNOWN" }
            }
        }

        impl From<i32> for $name {
            fn from(code: i32) -> Self { Self::from_code(code) }
        }

        impl From<$name> for i32 {
            fn from(code: $name) -> i32 { code.code() }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}({})", self.name(), self.code())
            }
        }
    };
}
use codes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for code in RequestCode::ALL {
            assert_eq!(RequestCode::from_code(code.code()), *code);
        }
        for code in ResponseCode::ALL {
            assert_eq!(ResponseCode::from_code(code.code()), *code);
        }
        assert_eq!(RequestCode::from_code(-5), RequestCode::Unknown(-5));
        assert_eq!(
            RequestCode::SendMessageV2.to_string(),
            "SEND_MESSAGE_V2(310)"
        );
    }
}
