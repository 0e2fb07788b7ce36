//! A guest that is booted.

use std::path::Path;

use guest::{Image, Job};

/// The image, or nothing where a package is missing: only a machine that must have all fails then.
fn image() -> Option<Image> {
    if let Some(package) = guest::missing() {
        let required = std::env::var("VERVAIN_TEST_PEERS").is_ok_and(|value| value == "required");
        assert!(!required, "the package {package} is missing");
        eprintln!("left out: the package {package} is missing");
        return None;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../guest");
    Some(Image::open(&directory).expect("an image"))
}

#[test]
fn a_job_runs_in_a_kernel_of_its_own_and_says_how_it_ended() {
    let Some(image) = image() else {
        return;
    };
    let tree = Job::new("uname -r; uname -m; tool one two; exit 7");
    let scratch = tempfile::tempdir().expect("a directory");
    let tool = scratch.path().join("tool");
    std::fs::write(&tool, "#!/bin/sh\necho $#\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&tool, mode).expect("may be run");
    let said = image
        .run(&tree.program(&tool).expect("a program"))
        .expect("it boots");
    let lines: Vec<&str> = said.text.lines().collect();
    assert_eq!(said.code, 7, "{}", said.console);
    assert!(lines[0].contains("cloud-amd64"), "{lines:?}");
    assert_eq!(&lines[1..], ["x86_64", "2"]);
}
