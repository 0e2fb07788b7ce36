//! The readers of requests, answers and handshakes: what they take they write back as it was.

use cache::herd::slots::Geometry;
use cache::herd::wire::answer::{self, Head};
use cache::herd::wire::handshake::{Message, VERSION};
use cache::herd::wire::request::{HEADER_LEN, Header, KEY_LEN_MAX, Request};

/// Bytes of a slot.
const SLOT_LEN: usize = 1024;

/// Reads the bytes as each of them.
///
/// # Panics
/// When a reader takes what is not written like that.
pub fn run(input: &[u8]) {
    request(&input[input.len().saturating_sub(SLOT_LEN)..]);
    answer(input);
    if let Ok(message) = Message::parse(input) {
        same(&message, input);
        // The line says the same.
        let line = message.to_line();
        assert_eq!(Message::from_line(line.as_bytes()), Ok(message.clone()));
        let ended = line.to_uppercase().replacen("VERVAIN", "vervain", 1) + " \r\n";
        assert_eq!(Message::from_line(ended.as_bytes()), Ok(message));
    }
    if let Ok(message) = Message::from_line(input) {
        assert_eq!(
            Message::from_line(message.to_line().as_bytes()),
            Ok(message)
        );
    }
}

/// A request in the end of a slot.
fn request(slot: &[u8]) {
    let request = match Request::parse(slot) {
        Ok(request) => request,
        Err(error) => {
            // Reasons are for people.
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let header = Header::parse(slot).expect("a request has a header");
    let (op, len) = header.check(slot.len()).expect("a request is sound");
    assert_eq!((op, len), (request.op(), request.len()));
    assert!(HEADER_LEN <= len && len <= slot.len());
    assert!(usize::from(header.key_len) <= KEY_LEN_MAX);
    let wants_cas = Request::wants_cas(slot);
    let mut again = vec![0xa5; SLOT_LEN];
    assert_eq!(request.emit(header.id, wants_cas, &mut again), Some(len));
    assert_eq!(again[SLOT_LEN - len..], slot[slot.len() - len..]);
    assert!(again[..SLOT_LEN - len].iter().all(|&byte| byte == 0xa5));
    // What comes before it in the slot does not matter.
    assert_eq!(Request::parse(&slot[slot.len() - len..]), Ok(request));
    // It goes where its id says, inside the chunk.
    let geometry = Geometry::new(SLOT_LEN, 16).expect("a geometry");
    let end = geometry.slot_end(header.id);
    assert!(end <= geometry.chunk_len() && end >= SLOT_LEN);
}

/// An answer in a datagram.
fn answer(datagram: &[u8]) {
    let Some((head, body)) = Head::parse(datagram) else {
        return;
    };
    let mut again = vec![0; head.len() + body.len()];
    assert_eq!(head.emit(body, &mut again), again.len());
    assert_eq!(again, datagram[..again.len()]);
    if head.is_number {
        let number = answer::number(body).expect("a number has 8 bytes");
        assert_eq!(number.to_le_bytes(), body);
    }
}

/// A message writes itself as it was read, but for the version and reasons that later versions may have.
fn same(message: &Message, bytes: &[u8]) {
    let again = message.emit();
    assert_eq!(again.len(), bytes.len());
    let version = VERSION.to_le_bytes();
    match message {
        Message::Hello(..) | Message::Refuse(_) => assert_eq!(again[4..6], version),
        _ => assert_eq!(again, bytes),
    }
}
