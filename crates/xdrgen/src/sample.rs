//! Encoded values of any type, drawn from the description alone: a second reading of it, which the
//! Rust types are tested with.

use crate::{Count, Declaration, Definition, Schema, Type};

/// Draws values.
pub struct Sampler<'s> {
    schema: &'s Schema,
    random: fastrand::Rng,
    /// Whether enumerations may have numbers without a name.
    unnamed: bool,
    out: Vec<u8>,
}

impl<'s> Sampler<'s> {
    /// One that draws the same values for the same seed.
    pub fn new(schema: &'s Schema, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let unnamed = true;
        Self {
            schema,
            random,
            unnamed,
            out: Vec::new(),
        }
    }

    /// The same, with numbers of enumerations that have names alone.
    #[must_use]
    pub fn named_only(self) -> Self {
        Self {
            unnamed: false,
            ..self
        }
    }

    /// A value of the type of this name, as it goes over the wire. Bitmaps have no trailing words of
    /// zeros and four words at most, padding is zero. `fattr4` holds the attributes that it says: the
    /// constant `FATTR4_X` numbers the type `fattr4_x`.
    ///
    /// # Panics
    /// If the description has no such type.
    pub fn sample(&mut self, name: &str) -> Vec<u8> {
        self.named(name);
        std::mem::take(&mut self.out)
    }

    /// `fattr4`: a bitmap, and the values of the attributes in it, one after the other.
    fn attributes(&mut self) {
        let schema = self.schema;
        let mut kinds: Vec<(u64, String)> = schema
            .constants
            .iter()
            .filter_map(|(name, number)| Some((*number, name.strip_prefix("FATTR4_")?)))
            .map(|(number, name)| (number, format!("fattr4_{}", name.to_ascii_lowercase())))
            .collect();
        kinds.sort();
        let count = self.random.usize(..=3).min(kinds.len());
        self.random.shuffle(&mut kinds);
        kinds.truncate(count);
        kinds.sort();
        let words = kinds.last().map_or(0, |last| last.0 as u32 / 32 + 1);
        self.u32(words);
        for word in 0..words {
            let inside = kinds.iter().filter(|kind| kind.0 as u32 / 32 == word);
            self.u32(inside.map(|kind| 1 << (kind.0 % 32)).sum());
        }
        let before = std::mem::take(&mut self.out);
        kinds.iter().for_each(|(_, name)| self.named(name));
        let values = std::mem::replace(&mut self.out, before);
        self.u32(values.len() as u32);
        self.out.extend_from_slice(&values);
    }

    fn named(&mut self, name: &str) {
        let schema = self.schema;
        let definition = schema.get(name).unwrap_or_else(|| panic!("no type {name}"));
        match definition {
            Definition::Typedef(_) if name == "bitmap4" => self.bitmap(),
            Definition::Typedef(of) => self.declaration(of),
            Definition::Struct(_) if name == "fattr4" => self.attributes(),
            Definition::Enum(members) => {
                // Registries grow: sometimes a number that has no name.
                let value = match self.random.u8(..8) {
                    0 if self.unnamed => self.random.u32(..),
                    _ => self.one_of(members.iter().map(|member| member.1)) as u32,
                };
                self.u32(value);
            }
            Definition::Struct(members) => {
                let kept = members.len() - usize::from(schema.is_list(name));
                members[..kept]
                    .iter()
                    .for_each(|member| self.declaration(member));
            }
            Definition::Union { arms, .. } => {
                let index = self.random.usize(..arms.len());
                let arm = &arms[index];
                let named = |value: u32| {
                    let mut cases = arms.iter().filter_map(|arm| arm.case.as_ref());
                    cases.any(|case| case.1 == u64::from(value))
                };
                let value = match &arm.case {
                    Some((_, value)) => *value as u32,
                    None => loop {
                        let value = self.random.u32(..20_000);
                        if !named(value) {
                            break value;
                        }
                    },
                };
                self.u32(value);
                self.declaration(&arm.member);
            }
        }
    }

    fn declaration(&mut self, of: &Declaration) {
        if of.of == Type::Opaque {
            return self.opaque(of.count);
        }
        match of.count {
            Count::One => self.one(&of.of),
            Count::Fixed(count) => (0..count).for_each(|_| self.one(&of.of)),
            Count::UpTo(most) => {
                let count = self
                    .random
                    .u32(..=3)
                    .min(most.map_or(3, |most| most as u32));
                self.u32(count);
                (0..count).for_each(|_| self.one(&of.of));
            }
            Count::Optional => {
                let most = match &of.of {
                    Type::Named(name) if self.schema.is_list(name) => 3,
                    _ => 1,
                };
                for _ in 0..self.random.u32(..=most) {
                    self.u32(1);
                    self.one(&of.of);
                }
                self.u32(0);
            }
        }
    }

    fn one(&mut self, of: &Type) {
        match of {
            Type::Void => {}
            Type::I32 | Type::U32 => {
                let value = self.interesting() as u32;
                self.u32(value);
            }
            Type::I64 | Type::U64 => {
                let value = self.interesting();
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Type::Bool => {
                let value = self.random.bool();
                self.u32(value.into());
            }
            Type::Opaque => unreachable!("bytes are declared with a length"),
            Type::Named(name) => self.named(name),
        }
    }

    fn opaque(&mut self, count: Count) {
        let size = match count {
            Count::Fixed(size) => size as usize,
            Count::UpTo(most) => {
                let most = most.unwrap_or(300) as usize;
                let size = match self.random.u8(..8) {
                    0 => most,
                    _ => self.random.usize(..=most.min(12)),
                };
                self.u32(size as u32);
                size
            }
            Count::One | Count::Optional => unreachable!("bytes are declared with a length"),
        };
        let bytes: Vec<u8> = (0..size).map(|_| self.random.u8(..)).collect();
        self.out.extend_from_slice(&bytes);
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }

    fn bitmap(&mut self) {
        let count = self.random.u32(..=4);
        self.u32(count);
        for word in 0..count {
            let value = self.random.u32(u32::from(word + 1 == count)..);
            self.u32(value);
        }
    }

    fn interesting(&mut self) -> u64 {
        match self.random.u8(..6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 63,
            3 => u64::from(u32::MAX),
            _ => self.random.u64(..),
        }
    }

    fn one_of(&mut self, values: impl Iterator<Item = u64>) -> u64 {
        let values: Vec<u64> = values.collect();
        values[self.random.usize(..values.len())]
    }

    fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }
}
