//! Programs that are no servers.

use bench::process::{ProcessError, ServerSettings, vervain};

#[test]
fn a_program_that_is_no_server_is_found_out() {
    let settings = ServerSettings::default();
    let wrong = vervain::start("/bin/echo".as_ref(), &settings);
    assert!(
        matches!(
            wrong,
            Err(ProcessError::Odd { .. } | ProcessError::Ended { .. })
        ),
        "{wrong:?}"
    );
    let wrong = vervain::start("/bin/false".as_ref(), &settings);
    assert!(
        matches!(wrong, Err(ProcessError::Ended { .. })),
        "{wrong:?}"
    );
    let wrong = vervain::start("/nonexistent/vervain".as_ref(), &settings);
    assert!(
        matches!(wrong, Err(ProcessError::System { .. })),
        "{wrong:?}"
    );
}
