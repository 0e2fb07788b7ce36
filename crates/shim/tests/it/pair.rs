//! Programs that nobody here wrote: what is missing is left out, except in CI.

pub(crate) use programs::host::{Listens, RSPRELOAD, text};
pub(crate) use programs::{Host, Running, Said, alone, find as installed};

/// Says that a test is left out for want of something, or fails where that is not allowed.
pub(crate) fn leave_out(what: &str) {
    assert!(
        std::env::var_os("VERVAIN_TEST_PEERS").is_none(),
        "{what}: missing"
    );
    eprintln!("left out: {what}: missing");
}

/// Whether a program is there. In CI it has to be.
pub(crate) fn has(program: &str) -> bool {
    let found = installed(program).is_some();
    if !found {
        leave_out(program);
    }
    found
}
