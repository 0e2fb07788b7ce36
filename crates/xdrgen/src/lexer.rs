//! The words of an XDR description (RFC 4506, section 6.2).

use crate::ParseError;

/// A word and the line it is on, counted from one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// Splits a description into identifiers, numbers and punctuation. Comments, and lines that begin
/// with `%` (which rpcgen passes on to C), are left out.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (source, 1);
    let mut line_begins = true;
    while let Some(first) = rest.chars().next() {
        let size = match first {
            '\n' => 1,
            '%' if line_begins => rest.find('\n').unwrap_or(rest.len()),
            _ if first.is_whitespace() => first.len_utf8(),
            _ if rest.starts_with("/*") => {
                let end = comment_end(rest);
                end.ok_or(ParseError::new(line, "the comment has no end"))?
            }
            _ => {
                let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let word = rest.find(|c: char| !in_word(c)).unwrap_or(rest.len());
                let size = if word == 0 { first.len_utf8() } else { word };
                found.push(Token {
                    text: &rest[..size],
                    line,
                });
                size
            }
        };
        let (taken, left) = rest.split_at(size);
        line += taken.matches('\n').count();
        line_begins = first == '\n' || (line_begins && first.is_whitespace());
        rest = left;
    }
    Ok(found)
}

/// Where the comment ends that a text begins with. RFC 8276 has comments inside of comments.
fn comment_end(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    loop {
        let rest = &text[at..];
        let open = rest.find("/*").unwrap_or(rest.len());
        let close = rest.find("*/")?;
        depth = if open < close { depth + 1 } else { depth - 1 };
        at += open.min(close) + 2;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_lines_and_comments_are_left_out() {
        let source = "/* one\n /* two */ */ const A = 0x1;\n%#include <x>\nopaque b<>;";
        let words = tokens(source).expect("words");
        let texts: Vec<&str> = words.iter().map(|token| token.text).collect();
        assert_eq!(
            texts,
            ["const", "A", "=", "0x1", ";", "opaque", "b", "<", ">", ";"]
        );
        assert_eq!((words[0].line, words[5].line), (2, 4));
        assert!(tokens("/* open").is_err());
        assert!(tokens("/* open /* closed */").is_err());
    }
}
