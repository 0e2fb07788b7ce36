//! A segment's header that is read while it is written.

use loom::sync::Arc;
use loom::thread;

use crate::shared::header::{Owner, read, sign};
use crate::shared::layout::Header;

#[test]
fn whoever_finds_the_magic_number_finds_the_owner() {
    loom::model(|| {
        let header = Arc::new(Header {
            magic: Default::default(),
            version: Default::default(),
            instance: Default::default(),
            incarnation: Default::default(),
        });
        let owner = Owner {
            instance: 3,
            incarnation: 77,
        };
        let signs = header.clone();
        let thread = thread::spawn(move || sign(&signs, owner));
        if let Ok(found) = read(&header) {
            assert_eq!(found, owner);
        }
        thread.join().unwrap();
        assert_eq!(read(&header), Ok(owner));
    });
}
