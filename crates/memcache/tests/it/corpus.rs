//! Conversations kept in `tests/corpus`, for the tests of the door and of the product.
//!
//! A file is a list of conversations. `#` begins one with its name, `>` lines are what the client
//! says, `<` lines what it hears, `!` says how it ends if the connection does not stay. Spaces
//! around a line count, except the one behind its mark. `\r`, `\n`, `\t`, `\xNN` and `\\` are escapes,
//! `{s*9}` is `s` nine times. A conversation marked `~` is one that memcached 1.6.18 answers otherwise.

/// How a conversation ends when all is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Stays,
    Closes,
    Upgrades,
}

pub(crate) struct Conversation {
    pub(crate) name: String,
    pub(crate) says: Vec<u8>,
    pub(crate) hears: Vec<u8>,
    pub(crate) ends: Ends,
    /// memcached answers otherwise.
    pub(crate) differs: bool,
}

const CORPUS: [&str; 6] = [
    include_str!("../corpus/retrieval.txt"),
    include_str!("../corpus/storage.txt"),
    include_str!("../corpus/change.txt"),
    include_str!("../corpus/administration.txt"),
    include_str!("../corpus/lines.txt"),
    include_str!("../corpus/large.txt"),
];

/// All conversations of all files.
pub(crate) fn conversations() -> Vec<Conversation> {
    let mut list: Vec<Conversation> = Vec::new();
    for line in CORPUS.iter().flat_map(|file| file.lines()) {
        let (mark, text) = line.split_at(line.len().min(2));
        if mark == "# " {
            let (says, hears) = (Vec::new(), Vec::new());
            list.push(Conversation {
                name: text.to_owned(),
                says,
                hears,
                ends: Ends::Stays,
                differs: false,
            });
            continue;
        }
        let Some(last) = list.last_mut() else {
            panic!("a line before the first name: {line}")
        };
        match mark {
            "> " => last.says.extend(unescape(text)),
            "< " => last.hears.extend(unescape(text)),
            "! " if text == "closes" => last.ends = Ends::Closes,
            "! " if text == "upgrades" => last.ends = Ends::Upgrades,
            "~ " => last.differs = true,
            "" => {}
            _ => panic!("not a line of a conversation: {line}"),
        }
    }
    assert!(list.len() > 100, "the corpus was not read");
    list
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '\\' => {
                let (escape, after) = rest.split_at(1);
                rest = after;
                match escape {
                    "r" => bytes.push(b'\r'),
                    "n" => bytes.push(b'\n'),
                    "t" => bytes.push(b'\t'),
                    "\\" => bytes.push(b'\\'),
                    "x" => {
                        bytes.push(u8::from_str_radix(&rest[..2], 16).expect("two hex digits"));
                        rest = &rest[2..];
                    }
                    _ => panic!("not an escape: \\{escape} in {text}"),
                }
            }
            '{' => {
                let (repeat, after) = rest.split_once('}').expect("a closing brace");
                let (what, times) = repeat.rsplit_once('*').expect("a number of times");
                bytes.extend(what.repeat(times.parse().expect("a number")).into_bytes());
                rest = after;
            }
            _ => bytes.extend(first.to_string().into_bytes()),
        }
    }
    bytes
}
