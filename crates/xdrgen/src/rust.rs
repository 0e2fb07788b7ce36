//! Writes Rust declarations for a description: one macro call a type, so that the file reads like
//! the description. The macros are those of `nfs::xdr`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::{Arm, Count, Declaration, Definition, Schema, Type};

/// Bounds up to this many members become arrays in place.
const IN_PLACE_MAX: u64 = 64;

/// Types that are written by hand: their names in the description and in Rust. Those that borrow have
/// the lifetime `'a`.
const BY_HAND: [(&str, &str); 2] = [("bitmap4", "Bitmap4"), ("authsys_parms", "AuthSys<'a>")];

/// The Rust declarations. Names become Rust's (`open_claim4` is `OpenClaim4`), constants and members
/// keep theirs. A union of `nfsstat4` that holds something for `NFS4_OK` alone is a `Result`, and so
/// is a structure of nothing but the status.
///
/// # Panics
/// Where a description uses what no Rust type stands for: two types with one name in Rust, arrays of
/// a fixed number of other than bytes, optional values other than lists.
pub fn rust(schema: &Schema) -> String {
    let writer = Writer {
        schema,
        borrowing: borrowing(schema),
    };
    writer.write()
}

/// A name as Rust has it for types: a capital at the start and after each `_` or run of digits.
fn camel(name: &str) -> String {
    let mut camel = String::new();
    let mut begins = true;
    for c in name.chars() {
        if c == '_' {
            begins = true;
            continue;
        }
        let c = if begins {
            c.to_ascii_uppercase()
        } else {
            c.to_ascii_lowercase()
        };
        begins = c.is_ascii_digit();
        camel.push(c);
    }
    camel
}

/// The types that hold slices of what they were decoded from.
fn borrowing(schema: &Schema) -> BTreeSet<String> {
    let by_hand = BY_HAND.iter().filter(|(_, rust)| rust.contains("'a"));
    let mut found: BTreeSet<String> = by_hand.map(|(name, _)| (*name).to_owned()).collect();
    loop {
        let before = found.len();
        for (name, definition) in &schema.definitions {
            let borrows = |member: &&Declaration| match &member.of {
                Type::Opaque => !matches!(member.count, Count::Fixed(_)),
                Type::Named(of) => found.contains(of),
                _ => false,
            };
            if !is_by_hand(name) && definition.members().iter().any(borrows) {
                found.insert(name.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

fn is_by_hand(name: &str) -> bool {
    BY_HAND.iter().any(|(by_hand, _)| *by_hand == name)
}

struct Writer<'s> {
    schema: &'s Schema,
    borrowing: BTreeSet<String>,
}

impl Writer<'_> {
    fn write(&self) -> String {
        let mut out = String::from("xdr_constants! {\n");
        for (name, value) in &self.schema.constants {
            let ty = if *value > u64::from(u32::MAX) {
                "u64"
            } else {
                "u32"
            };
            put(
                &mut out,
                format_args!("    {name}: {ty} = {};\n", number(*value)),
            );
        }
        out.push_str("}\n");
        let mut names = BTreeMap::new();
        for (name, definition) in &self.schema.definitions {
            if is_by_hand(name) {
                continue;
            }
            let there = names.insert(camel(name), name);
            assert!(
                there.is_none(),
                "{name} and {there:?} have the same name in Rust"
            );
            self.definition(&mut out, name, definition);
        }
        self.attributes(&mut out);
        out.push_str("\n#[cfg(test)]\nxdr_names! {\n");
        for (camel, name) in names {
            put(&mut out, format_args!("    \"{name}\" {camel},\n"));
        }
        out.push_str("}\n");
        out
    }

    fn definition(&self, out: &mut String, name: &str, definition: &Definition) {
        let rust = self.named(name);
        let doc = format!("\n/// `{name}`.");
        match definition {
            Definition::Typedef(of) => {
                put(
                    out,
                    format_args!("{doc}\npub type {rust} = {};\n", self.ty(of)),
                );
            }
            Definition::Enum(members) => {
                put(
                    out,
                    format_args!("\nxdr_enum! {{{doc}\npub struct {rust} {{\n"),
                );
                for (member, value) in members {
                    put(out, format_args!("    {member} = {},\n", number(*value)));
                }
                out.push_str("} }\n");
            }
            Definition::Struct(members) => {
                let kept = members.len() - usize::from(self.schema.is_list(name));
                match &members[..kept] {
                    [only] if is_status(only) => {
                        put(
                            out,
                            format_args!("{doc}\npub type {rust} = Result<(), Nfsstat4>;\n"),
                        );
                    }
                    members => {
                        put(out, format_args!("\nxdr_struct! {{{doc}\n"));
                        self.structure(out, &rust, members);
                    }
                }
            }
            Definition::Union { by, arms } => match &arms[..] {
                [ok, default]
                    if is_status(by) && default.case.is_none() && default.holds_nothing() =>
                {
                    let held = self.held(ok);
                    put(
                        out,
                        format_args!("{doc}\npub type {rust} = Result<{held}, Nfsstat4>;\n"),
                    );
                }
                arms => {
                    put(out, format_args!("\nxdr_union! {{{doc}\n"));
                    self.union(out, &rust, by, arms);
                }
            },
        }
    }

    fn structure(&self, out: &mut String, rust: &str, members: &[Declaration]) {
        put(out, format_args!("pub struct {rust} {{\n"));
        for member in members {
            let name = match member.name.as_str() {
                "type" => "r#type",
                name => name,
            };
            put(out, format_args!("    {name}: {},\n", self.ty(member)));
        }
        out.push_str("} }\n");
    }

    fn union(&self, out: &mut String, rust: &str, by: &Declaration, arms: &[Arm]) {
        put(out, format_args!("pub enum {rust} by {} {{\n", self.ty(by)));
        for arm in arms {
            let Some((case, value)) = &arm.case else {
                let mut held = self.ty(by);
                if !arm.holds_nothing() {
                    held = format!("{held}, {}", self.ty(&arm.member));
                }
                put(
                    out,
                    format_args!(
                        "    else Default({held}),
"
                    ),
                );
                continue;
            };
            let name = match case.as_str() {
                "TRUE" | "FALSE" if !arm.holds_nothing() => camel(&arm.member.name),
                case => camel(case.trim_start_matches("OP_")),
            };
            let held = match arm.member.of {
                Type::Void => String::new(),
                _ => format!("({})", self.ty(&arm.member)),
            };
            put(out, format_args!("    {} {name}{held},\n", number(*value)));
        }
        out.push_str("} }\n");
    }

    /// What an arm holds.
    fn held(&self, arm: &Arm) -> String {
        match arm.member.of {
            Type::Void => "()".to_owned(),
            _ => self.ty(&arm.member),
        }
    }

    /// The attributes of `fattr4`: by convention the constant `FATTR4_X` numbers the type `fattr4_x`.
    fn attributes(&self, out: &mut String) {
        let constants = self.schema.constants.iter();
        let mut found: Vec<(u64, &str, String)> = constants
            .filter_map(|(constant, number)| {
                let name = constant.strip_prefix("FATTR4_")?;
                let ty = format!("fattr4_{}", name.to_ascii_lowercase());
                assert!(self.schema.get(&ty).is_some(), "{constant} without a type");
                Some((*number, name, self.named(&ty)))
            })
            .collect();
        found.sort();
        out.push_str("\nxdr_attributes! {\n");
        for (number, name, ty) in found {
            put(
                out,
                format_args!("    {number} {name} {}({ty}),\n", camel(name)),
            );
        }
        out.push_str("}\n");
    }

    fn named(&self, name: &str) -> String {
        if let Some((_, rust)) = BY_HAND.iter().find(|(by_hand, _)| *by_hand == name) {
            return (*rust).to_owned();
        }
        let lifetime = if self.borrowing.contains(name) {
            "<'a>"
        } else {
            ""
        };
        format!("{}{lifetime}", camel(name))
    }

    fn ty(&self, of: &Declaration) -> String {
        let one = match &of.of {
            Type::Void => "()".to_owned(),
            Type::I32 => "i32".to_owned(),
            Type::U32 => "u32".to_owned(),
            Type::I64 => "i64".to_owned(),
            Type::U64 => "u64".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Opaque => "u8".to_owned(),
            Type::Named(name) => self.named(name),
        };
        let bytes = of.of == Type::Opaque;
        match (of.count, &of.of) {
            (Count::One, _) if !bytes => one,
            (Count::Fixed(size), _) if bytes => format!("[u8; {size}]"),
            (Count::UpTo(None), _) if bytes => "Opaque<'a>".to_owned(),
            (Count::UpTo(Some(most)), _) if bytes => format!("Opaque<'a, {most}>"),
            (Count::UpTo(None), _) => format!("Vec<{one}>"),
            (Count::UpTo(Some(1)), _) => format!("Option<{one}>"),
            (Count::UpTo(Some(most)), _) if most <= IN_PLACE_MAX => {
                format!("arrayvec::ArrayVec<{one}, {most}>")
            }
            (Count::Optional, Type::Named(name)) if self.schema.is_list(name) => {
                format!("Chain<{one}>")
            }
            _ => panic!("{}: no Rust type stands for this", of.name),
        }
    }
}

impl Arm {
    fn holds_nothing(&self) -> bool {
        self.member.of == Type::Void
    }
}

/// Whether it is a status of an operation.
fn is_status(of: &Declaration) -> bool {
    of.of == Type::Named("nfsstat4".to_owned()) && of.count == Count::One
}

/// Small numbers count something, large ones are masks.
fn number(value: u64) -> String {
    if value < 100_000 {
        value.to_string()
    } else {
        format!("{value:#x}")
    }
}

fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_rusts() {
        for (name, rust) in [
            ("nfs_fh4", "NfsFh4"),
            ("OPEN4resok", "Open4Resok"),
            ("EXCHANGE_ID4args", "ExchangeId4Args"),
            ("nfsv4_1_file_layout4", "Nfsv41FileLayout4"),
        ] {
            assert_eq!(camel(name), rust);
        }
    }

    fn declarations(source: &str) -> String {
        let status = "enum nfsstat4 { NFS4_OK = 0 };";
        let schema = Schema::parse(&[status, source]).expect("a schema");
        rust(&schema)
    }

    #[test]
    fn what_holds_bytes_borrows_and_the_rest_does_not() {
        let rust = declarations(
            "typedef opaque name<8>; struct a { name n; }; struct b { a inner<>; int i; };
             struct c { opaque id[4]; };",
        );
        assert!(
            rust.contains("pub type Name<'a> = Opaque<'a, 8>;"),
            "{rust}"
        );
        assert!(
            rust.contains("pub struct B<'a> {\n    inner: Vec<A<'a>>,"),
            "{rust}"
        );
        assert!(rust.contains("pub struct C {\n    id: [u8; 4],"), "{rust}");
    }

    #[test]
    fn a_list_is_flat_and_a_status_is_a_result() {
        let rust = declarations(
            "struct entry { int i; entry *next; }; struct list { entry *first; };
             struct done { nfsstat4 status; };
             union got switch (nfsstat4 s) { case NFS4_OK: list l; default: void; };",
        );
        assert!(
            rust.contains("pub struct Entry {\n    i: i32,\n} }"),
            "{rust}"
        );
        assert!(rust.contains("first: Chain<Entry>,"), "{rust}");
        assert!(
            rust.contains("pub type Done = Result<(), Nfsstat4>;"),
            "{rust}"
        );
        assert!(
            rust.contains("pub type Got = Result<List, Nfsstat4>;"),
            "{rust}"
        );
    }
}
