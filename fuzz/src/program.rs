//! The program's edges: what users write, and what servers answer to it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use lab::gates::book::Book;
use lab::report::{Record, chapters, html, markdown, write_summary};

use vervain::outside;

/// A command line, one word a line.
///
/// # Panics
/// When it is neither understood nor refused with a reason.
pub fn command_line(input: &[u8]) {
    let words = input.split(|&byte| byte == b'\n');
    // An argument has no zeros.
    let words = words.filter(|word| !word.contains(&0));
    let arguments: Vec<OsString> = words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    match outside::command_line(&arguments) {
        Ok(flags) => assert!(!flags.is_empty()),
        Err(told) => assert!(!told.trim().is_empty(), "a refusal without a reason"),
    }
}

/// Answers of a server to the one-shot commands over a socket.
///
/// # Panics
/// When a value is none that was sent, or a failure has no reason.
pub fn socket_answers(input: &[u8]) {
    match outside::socket_answers(input) {
        Ok((Some(value), _)) => {
            let mut windows = input.windows(value.len().max(1));
            assert!(value.is_empty() || windows.any(|window| window == value));
        }
        Ok((None, _)) => {}
        Err(told) => assert!(!told.is_empty()),
    }
}

/// A file: a report, or the counts of hot paths.
///
/// # Panics
/// When what was read cannot be shown.
pub fn files(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match Record::read(text) {
        Ok(record) => show(&record),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(book) = Book::parse(text) {
        let again = book.text().expect("a book is written");
        assert_eq!(Book::parse(&again).expect("a book is read again"), book);
    }
}

fn show(record: &Record) {
    for figure in chapters(record).iter().flat_map(|chapter| &chapter.figures) {
        if let Err(error) = roxmltree::Document::parse(&figure.svg) {
            panic!("{} is no picture: {error}", figure.name);
        }
    }
    assert!(
        html(record).trim_end().ends_with("</html>"),
        "the page is whole"
    );
    assert!(!markdown(record, ".").is_empty());
    let mut summary = Vec::new();
    write_summary(record, &mut summary).expect("memory takes it");
    assert!(!record.head.source().is_empty());
}
