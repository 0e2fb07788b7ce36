//! A test binary that calls verbs itself: it starts again on the software NIC before its harness does.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::Command;

use vervain_test::Vervain;

vervain_test::on_software_nic!(installed());

/// The program under test, with the library that cargo puts beside the tests.
fn installed() -> Vervain {
    let test = std::env::current_exe().expect("a path");
    let library = test.with_file_name("libvervain_verbs.so");
    Vervain::at(env!("CARGO_BIN_EXE_vervain")).library(library)
}

/// A function that the dynamic linker finds for this program.
fn function(name: &CStr) -> *mut c_void {
    // SAFETY: a name with its end.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "nobody has {name:?}");
    found
}

#[test]
fn verbs_in_this_process_find_the_device() {
    assert!(vervain_test::is_on_software_nic());
    type List = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
    type Name = unsafe extern "C" fn(*mut c_void) -> *const c_char;
    type Free = unsafe extern "C" fn(*mut *mut c_void);
    // SAFETY: libibverbs' functions of these names have these types.
    let (list, name, free) = unsafe {
        (
            std::mem::transmute::<*mut c_void, List>(function(c"ibv_get_device_list")),
            std::mem::transmute::<*mut c_void, Name>(function(c"ibv_get_device_name")),
            std::mem::transmute::<*mut c_void, Free>(function(c"ibv_free_device_list")),
        )
    };
    let mut count = 0;
    // SAFETY: the number is written, and the list is freed once.
    let names: Vec<String> = unsafe {
        let devices = list(&raw mut count);
        assert!(!devices.is_null());
        let names = (0..count as usize).map(|at| CStr::from_ptr(name(*devices.add(at))));
        let names = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        free(devices);
        names
    };
    assert_eq!(names, ["vervain0"]);
}

#[test]
fn it_starts_again_with_its_arguments() {
    let again = |argument: &str| {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let output = command.arg(argument).env_remove("LD_PRELOAD").output();
        let output = output.expect("it runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        (output.status.code(), text)
    };
    let (code, listed) = again("--list");
    assert_eq!(code, Some(0));
    assert!(listed.contains("2 tests, 0 benchmarks"), "{listed}");
    // Only one that is on the software NIC passes.
    let (code, said) = again("verbs_in_this_process_find_the_device");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out"),
        "{said}"
    );
    let (code, _) = again("--no-such-flag");
    assert_eq!(code, Some(101), "the code is the harness's");
}
