//! What declarations in the style of the protocol's description become.

/// Constants.
macro_rules! xdr_constants {
    ($($name:ident: $ty:ty = $value:literal;)*) => {
        $(pub const $name: $ty = $value;)*
    };
}

/// Named numbers. Registries grow, so that a number without a name is a value as well.
macro_rules! xdr_enum {
    ($(#[$doc:meta])* pub struct $name:ident {
        $($member:ident = $value:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub u32);

        impl From<u32> for $name {
            fn from(value: u32) -> Self {
                Self(value)
            }
        }

        impl $name {
            $(
                #[allow(missing_docs, reason = "the names are the description's")]
                pub const $member: Self = Self($value);
            )*

            /// The description's name for it.
            #[allow(unreachable_patterns, reason = "some have two names")]
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($member)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }

        impl Decode<'_> for $name {
            fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
                from.take().map(Self)
            }
        }

        impl Encode for $name {
            fn encode(&self, to: &mut Encoder) {
                to.put(&self.0);
            }
        }
    };
}

/// Members, one after the other.
macro_rules! xdr_struct {
    ($(#[$doc:meta])* pub struct $name:ident $(<$life:lifetime>)? {
        $($(#[$member_doc:meta])* $member:ident: $ty:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct $name $(<$life>)? {
            $($(#[$member_doc])* pub $member: $ty,)*
        }

        impl<'a> Decode<'a> for $name $(<$life>)? {
            fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
                Ok(Self { $($member: from.take()?,)* })
            }
        }

        impl $(<$life>)? Encode for $name $(<$life>)? {
            fn encode(&self, to: &mut Encoder) {
                $(to.put(&self.$member);)*
            }
        }
    };
}

/// A discriminant, and what its value says that follows. `Default` holds a discriminant that is none
/// of the cases.
macro_rules! xdr_union {
    ($(#[$doc:meta])* pub enum $name:ident $(<$life:lifetime>)? by $by:ty {
        $($value:literal $case:ident $(($held:ty))?,)*
        $(else $default:ident($other:ty $(, $more:ty)?),)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub enum $name $(<$life>)? {
            $($case $(($held))?,)*
            $($default($other $(, $more)?),)?
        }

        impl<'a> Decode<'a> for $name $(<$life>)? {
            fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
                let value: u32 = from.take()?;
                match value {
                    $($value => Ok(Self::$case $((from.take::<$held>()?))?),)*
                    $(other => Ok(Self::$default(
                        <$other>::from(other)
                        $(, from.take::<$more>()?)?
                    )),)?
                    #[allow(unreachable_patterns, reason = "with a default nothing is left")]
                    _ => Err(XdrError::NoCase { of: stringify!($name), value }),
                }
            }
        }

        impl $(<$life>)? Encode for $name $(<$life>)? {
            fn encode(&self, to: &mut Encoder) {
                match self {
                    $(xdr_union!(@pattern held $case $($held)?) => {
                        to.put(&($value as u32));
                        xdr_union!(@put to held $($held)?);
                    })*
                    $(xdr_union!(@default other held $default $($more)?) => {
                        to.put(other);
                        xdr_union!(@put to held $($more)?);
                    })?
                }
            }
        }
    };
    (@pattern $bound:ident $case:ident) => { Self::$case };
    (@pattern $bound:ident $case:ident $held:ty) => { Self::$case($bound) };
    (@default $other:ident $bound:ident $case:ident) => { Self::$case($other) };
    (@default $other:ident $bound:ident $case:ident $held:ty) => { Self::$case($other, $bound) };
    (@put $to:ident $bound:ident) => {};
    (@put $to:ident $bound:ident $held:ty) => { $to.put($bound) };
}

/// The values of `fattr4` by their numbers.
macro_rules! xdr_attributes {
    ($($number:literal $constant:ident $name:ident($ty:ty),)*) => {
        /// An attribute of a file, one of those of `fattr4`.
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub enum Attribute<'a> {
            $($name($ty),)*
        }

        impl<'a> Attribute<'a> {
            /// Its bit in masks.
            #[must_use]
            pub fn number(&self) -> u32 {
                match self {
                    $(Self::$name(_) => $number,)*
                }
            }

            /// What the RFCs call the attribute of this number; None if they have none.
            #[must_use]
            pub fn name_of(number: u32) -> Option<&'static str> {
                match number {
                    $($number => Some(stringify!($constant)),)*
                    _ => None,
                }
            }

            /// Takes the value of the attribute of this number.
            ///
            /// # Errors
            /// If there is no such attribute, or the bytes are no value of its type.
            pub fn decode(
                number: u32,
                from: &mut Decoder<'a>,
            ) -> Result<Self, super::AttributeError> {
                match number {
                    $($number => Ok(Self::$name(from.take()?)),)*
                    _ => Err(super::AttributeError::Unknown(number)),
                }
            }

            /// Puts the value, without the number.
            pub fn encode_value(&self, to: &mut Encoder) {
                match self {
                    $(Self::$name(value) => to.put(value),)*
                }
            }
        }
    };
}

/// For tests: the types by their names in the description.
#[cfg(test)]
macro_rules! xdr_names {
    ($($text:literal $name:ident,)*) => {
        /// Decodes a type and encodes it again.
        pub(crate) fn recode(of: &str, bytes: &[u8]) -> Result<Vec<u8>, XdrError> {
            match of {
                $($text => crate::xdr::from_bytes::<$name>(bytes).map(|v| crate::xdr::to_bytes(&v)),)*
                _ => panic!("no type {of}"),
            }
        }

        /// The types' names.
        pub(crate) const NAMES: &[&str] = &[$($text,)*];
    };
}
