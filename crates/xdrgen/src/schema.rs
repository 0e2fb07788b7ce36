//! An XDR description, read (RFC 4506, section 6.3).

use std::collections::{BTreeMap, BTreeSet};

use crate::ParseError;
use crate::lexer::{Token, tokens};

/// What a declaration is of: a type of XDR's own, or one that the description names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Type {
    /// No data.
    Void,
    /// `int` and `int32_t`.
    I32,
    /// `unsigned int` and `uint32_t`.
    U32,
    /// `hyper` and `int64_t`.
    I64,
    /// `unsigned hyper` and `uint64_t`.
    U64,
    /// `bool`.
    Bool,
    /// Bytes: `opaque`, and `string`, which has the same encoding.
    Opaque,
    /// Declared elsewhere.
    Named(String),
}

/// How many values a declaration is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Count {
    /// One.
    One,
    /// `T name[N]`.
    Fixed(u64),
    /// `T name<N>` or `T name<>`: the length comes first.
    UpTo(Option<u64>),
    /// `T *name`.
    Optional,
}

/// A member, an arm's member, or what a typedef names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Declaration {
    /// Its name; empty for void.
    pub name: String,
    /// Of what.
    pub of: Type,
    /// How many.
    pub count: Count,
}

/// A case of a union, with its default told apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Arm {
    /// The case's name and value; None for the default.
    pub case: Option<(String, u64)>,
    /// What follows the discriminant.
    pub member: Declaration,
}

/// A definition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Definition {
    /// Another name for a declaration.
    Typedef(Declaration),
    /// Named numbers, in the order of the text.
    Enum(Vec<(String, u64)>),
    /// Members, in order.
    Struct(Vec<Declaration>),
    /// A discriminant, and what follows each of its values. Cases that share a member are arms of their
    /// own.
    Union {
        /// The discriminant's type and name.
        by: Declaration,
        /// The arms, the default last.
        arms: Vec<Arm>,
    },
}

/// A description.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Constants outside of enumerations, in order.
    pub constants: Vec<(String, u64)>,
    /// Definitions and their names, in order.
    pub definitions: Vec<(String, Definition)>,
    values: BTreeMap<String, u64>,
    places: BTreeMap<String, usize>,
}

impl Schema {
    /// Reads descriptions, one after the other. An enumeration or a union that was there before gets
    /// the further members or cases, as later RFCs add them.
    ///
    /// # Errors
    /// The line, in its own text, and what is wrong there: a word that is not expected, a name that
    /// nobody declares, or a type that contains itself other than as a list.
    pub fn parse(sources: &[&str]) -> Result<Self, ParseError> {
        let mut schema = Self::default();
        for source in sources {
            let tokens = tokens(source)?;
            let parser = Parser {
                schema: &mut schema,
                tokens: &tokens,
                at: 0,
            };
            parser.run()?;
        }
        schema.check()?;
        Ok(schema)
    }

    /// The definition of this name.
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.places
            .get(name)
            .map(|&place| &self.definitions[place].1)
    }

    /// Whether these are a list's members: the last one is an optional value of the same type.
    pub fn is_list(&self, name: &str) -> bool {
        let last = match self.get(name) {
            Some(Definition::Struct(members)) => members.last(),
            _ => None,
        };
        last.is_some_and(|last| {
            last.count == Count::Optional && last.of == Type::Named(name.to_owned())
        })
    }

    fn add(&mut self, name: String, definition: Definition, line: usize) -> Result<(), ParseError> {
        let Some(&place) = self.places.get(&name) else {
            self.places.insert(name.clone(), self.definitions.len());
            self.definitions.push((name, definition));
            return Ok(());
        };
        match (&mut self.definitions[place].1, definition) {
            (Definition::Enum(there), Definition::Enum(more)) => there.extend(more),
            (Definition::Union { arms: there, .. }, Definition::Union { arms: more, .. }) => {
                there.extend(more);
                there.sort_by_key(|arm| arm.case.is_none());
            }
            _ => return Err(ParseError::new(line, format!("{name} is there already"))),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ParseError> {
        let mut done = BTreeSet::new();
        for (name, _) in &self.definitions {
            self.descend(name, &mut Vec::new(), &mut done)?;
        }
        Ok(())
    }

    /// Looks for names without a definition and for types inside themselves.
    fn descend<'a>(
        &'a self,
        name: &'a str,
        inside: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Result<(), ParseError> {
        if inside.contains(&name) {
            return Err(ParseError::new(0, format!("{name} contains itself")));
        }
        if done.contains(name) {
            return Ok(());
        }
        let definition = self.get(name);
        let definition = definition.ok_or(ParseError::new(0, format!("{name} is not declared")))?;
        inside.push(name);
        for member in definition.members() {
            let is_next = member.count == Count::Optional && self.is_list(name);
            match &member.of {
                Type::Named(of) if !(is_next && of == name) => self.descend(of, inside, done)?,
                _ => {}
            }
        }
        inside.pop();
        done.insert(name);
        Ok(())
    }
}

impl Definition {
    /// All declarations inside.
    pub fn members(&self) -> Vec<&Declaration> {
        match self {
            Self::Typedef(declaration) => vec![declaration],
            Self::Enum(_) => Vec::new(),
            Self::Struct(members) => members.iter().collect(),
            Self::Union { by, arms } => {
                let members = arms.iter().map(|arm| &arm.member);
                std::iter::once(by).chain(members).collect()
            }
        }
    }
}

struct Parser<'a> {
    schema: &'a mut Schema,
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Result<(), ParseError> {
        while self.at < self.tokens.len() {
            let line = self.tokens[self.at].line;
            match self.next()? {
                "const" => self.constant()?,
                "typedef" => {
                    let declaration = self.declaration()?;
                    let name = declaration.name.clone();
                    self.schema
                        .add(name, Definition::Typedef(declaration), line)?;
                }
                "enum" => {
                    let name = self.next()?.to_owned();
                    let body = self.enumeration()?;
                    self.schema.add(name, body, line)?;
                }
                "struct" => {
                    let name = self.next()?.to_owned();
                    let body = self.structure()?;
                    self.schema.add(name, body, line)?;
                }
                "union" => {
                    let name = self.next()?.to_owned();
                    let body = self.union()?;
                    self.schema.add(name, body, line)?;
                }
                "program" => self.program()?,
                word => return Err(self.unexpected(word)),
            }
            self.take(";")?;
        }
        Ok(())
    }

    fn line(&self) -> usize {
        let last = self.at.saturating_sub(1).min(self.tokens.len() - 1);
        self.tokens[last].line
    }

    fn unexpected(&self, word: &str) -> ParseError {
        ParseError::new(self.line(), format!("{word} is not expected"))
    }

    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |token| token.text)
    }

    fn next(&mut self) -> Result<&'a str, ParseError> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        let token = token.ok_or_else(|| ParseError::new(self.line(), "the text ends"))?;
        Ok(token.text)
    }

    fn take(&mut self, word: &str) -> Result<(), ParseError> {
        match self.next()? {
            found if found == word => Ok(()),
            found => Err(self.unexpected(found)),
        }
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.at += usize::from(found);
        found
    }

    /// A number, or a name of one.
    fn value(&mut self) -> Result<u64, ParseError> {
        let word = self.next()?;
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        };
        let number = number.or_else(|| self.schema.values.get(word).copied());
        number.ok_or_else(|| self.unexpected(word))
    }

    fn constant(&mut self) -> Result<(), ParseError> {
        let name = self.next()?.to_owned();
        self.take("=")?;
        let value = self.value()?;
        self.schema.values.insert(name.clone(), value);
        self.schema.constants.push((name, value));
        Ok(())
    }

    fn enumeration(&mut self) -> Result<Definition, ParseError> {
        let mut members = Vec::new();
        self.take("{")?;
        while !self.takes("}") {
            let name = self.next()?.to_owned();
            self.take("=")?;
            let value = self.value()?;
            self.schema.values.insert(name.clone(), value);
            members.push((name, value));
            self.takes(",");
        }
        Ok(Definition::Enum(members))
    }

    fn structure(&mut self) -> Result<Definition, ParseError> {
        let mut members = Vec::new();
        self.take("{")?;
        while !self.takes("}") {
            members.push(self.declaration()?);
            self.take(";")?;
        }
        Ok(Definition::Struct(members))
    }

    fn union(&mut self) -> Result<Definition, ParseError> {
        self.take("switch")?;
        self.take("(")?;
        let by = self.declaration()?;
        self.take(")")?;
        self.take("{")?;
        let mut arms: Vec<Arm> = Vec::new();
        while !self.takes("}") {
            let mut cases = Vec::new();
            loop {
                if self.takes("default") {
                    cases.push(None);
                } else if self.takes("case") {
                    let name = self.peek().to_owned();
                    let value = match name.as_str() {
                        "TRUE" | "FALSE" => u64::from(self.next()? == "TRUE"),
                        _ => self.value()?,
                    };
                    cases.push(Some((name, value)));
                } else {
                    break;
                }
                self.take(":")?;
            }
            let member = self.declaration()?;
            self.take(";")?;
            let with_member = |case| Arm {
                case,
                member: member.clone(),
            };
            arms.extend(cases.into_iter().map(with_member));
        }
        arms.sort_by_key(|arm| arm.case.is_none());
        Ok(Definition::Union { by, arms })
    }

    /// Passes over a program: its procedures are numbers that everybody knows.
    fn program(&mut self) -> Result<(), ParseError> {
        let mut depth = 0;
        loop {
            match self.next()? {
                "{" => depth += 1,
                "}" => depth -= 1,
                "=" if depth == 0 => return self.next().map(|_| ()),
                _ => {}
            }
        }
    }

    fn declaration(&mut self) -> Result<Declaration, ParseError> {
        let of = match self.next()? {
            "void" => {
                let name = String::new();
                return Ok(Declaration {
                    name,
                    of: Type::Void,
                    count: Count::One,
                });
            }
            "unsigned" if self.takes("hyper") => Type::U64,
            "unsigned" => {
                self.takes("int");
                Type::U32
            }
            "int" | "int32_t" => Type::I32,
            "uint32_t" => Type::U32,
            "hyper" | "int64_t" => Type::I64,
            "uint64_t" => Type::U64,
            "bool" => Type::Bool,
            "opaque" | "string" => Type::Opaque,
            "struct" => Type::Named(self.next()?.to_owned()),
            name => Type::Named(name.to_owned()),
        };
        let optional = self.takes("*");
        let name = self.next()?.to_owned();
        let count = if optional {
            Count::Optional
        } else if self.takes("[") {
            let size = self.value()?;
            self.take("]")?;
            Count::Fixed(size)
        } else if self.takes("<") {
            let most = (self.peek() != ">").then(|| self.value()).transpose()?;
            self.take(">")?;
            Count::UpTo(most)
        } else {
            Count::One
        };
        Ok(Declaration { name, of, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (source, line, words) in [
            ("const A = B;", 1, "B is not expected"),
            ("\nstruct a { nobody b; };", 0, "nobody is not declared"),
            (
                "struct a { b c; };\nstruct b { a d; };",
                0,
                "contains itself",
            ),
            ("struct a { int b }", 1, "} is not expected"),
            ("\nenum a { B = 1", 2, "the text ends"),
            (
                "struct a { int b; };\nstruct a { int b; };",
                2,
                "is there already",
            ),
        ] {
            let error = Schema::parse(&[source]).expect_err(source);
            assert_eq!(error.line, line, "{source}");
            assert!(error.to_string().contains(words), "{source}: {error}");
        }
    }

    #[test]
    fn a_later_text_adds_to_enumerations_and_unions() {
        let first = "enum e { A = 1 }; union u switch (e by) { case A: int a; default: void; };";
        let second = "enum e { B = 2 }; union u switch (e by) { case B: bool b; };";
        let schema = Schema::parse(&[first, second]).expect("a schema");
        let Some(Definition::Union { arms, .. }) = schema.get("u") else {
            panic!("a union");
        };
        let cases: Vec<Option<u64>> = arms
            .iter()
            .map(|arm| arm.case.as_ref().map(|case| case.1))
            .collect();
        assert_eq!(cases, [Some(1), Some(2), None]);
    }
}
