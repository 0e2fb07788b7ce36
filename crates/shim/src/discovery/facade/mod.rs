//! libibverbs' symbols with their versions, which the functions here do not have.
//!
//! A small library in C (`facade.c`, linked by `build.rs`) has them, and goes on to the functions here. It lies in this
//! library, in a section of its own. It is for two kinds of programs:
//!
//! - Those that open libibverbs by `dlopen`, as NCCL does, and ask for its symbols with their versions (`dlvsym`): `dlopen` of libibverbs'
//!   name leads to it. It is loaded from a memfd, or from a file without a name where there are no memfds.
//! - Those that are linked with libibverbs, on a machine that has none: `vervain run` takes it out of the section, and puts it where the
//!   dynamic linker looks for libibverbs.
//!
//! Its own name is another one, so that where there is a libibverbs, libraries that need its private symbols get that. Under
//! which name a library was looked for is as good as its own to the dynamic linker, so that it need not have both.
//!
//! | file | what |
//! | --- | --- |
//! | `symbols` | the symbols and their versions: of rdma-core 44 all but those of before 2007 (`IBVERBS_1.0`'s structures), and what rdma-core 59 has more in public |
//! | `words` | functions that need no device |
//! | `records` | what librdmacm asks of libibverbs beside them |
//!
//! Symbols of `IBVERBS_PRIVATE_34` are for drivers' libraries: programs may be linked with libmlx5, which loads only where they are
//! all there. No device is a driver's here, so that nobody calls them.
//!
//! What `dlopen` looks for depends on who calls it. All other names go on to the next library's, as if
//! called from where this was: that needs a few instructions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;

use rustix::fs::{MemfdFlags, Mode, OFlags};

use crate::process::complain;
use crate::process::settings;
use crate::process::{Next, next};

mod records;
mod words;

const FILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/facade.so"));
/// Where `vervain run` looks for it in this library (`crates/vervain/src/programs/libibverbs.rs`).
#[used]
#[unsafe(link_section = ".vervain.ibverbs")]
static FACADE: [u8; FILE.len()] = {
    let mut bytes = [0; FILE.len()];
    bytes.copy_from_slice(FILE);
    bytes
};
/// What it calls itself.
const FACADE_NAME: &CStr = c"libvervain_ibverbs.so.1";
/// What programs call libibverbs.
const NAMES: [&CStr; 2] = [c"libibverbs.so.1", c"libibverbs.so"];

fn dlopen_next(path: &CStr, flags: c_int) -> *mut c_void {
    next!(
        c"dlopen",
        fn(*const c_char, c_int) -> *mut c_void,
        path.as_ptr(),
        flags
    )
}

/// What an opened library or the next `dlopen` is.
#[repr(C)]
struct Answer {
    /// Null if the name is another library's.
    handle: *mut c_void,
    next: *mut c_void,
}

/// Libibverbs, if that is what is asked for.
///
/// # Safety
/// `name` is null or a string.
unsafe extern "C" fn answer(name: *const c_char, flags: c_int) -> Answer {
    static NEXT: Next = Next::new(c"dlopen");
    // SAFETY: the caller's promise.
    let is_it = !name.is_null() && NAMES.contains(&unsafe { CStr::from_ptr(name) });
    let handle = match is_it {
        true => open(flags),
        false => std::ptr::null_mut(),
    };
    let next = NEXT.get();
    Answer { handle, next }
}

/// Opens the facade, loading it if need be; null where that is not possible, after saying why.
///
/// No lock is held, because the dynamic linker may hold its own: two threads at once may load it twice, which does no harm.
fn open(flags: c_int) -> *mut c_void {
    let flags = libc::RTLD_NOW | flags & (libc::RTLD_GLOBAL | libc::RTLD_NODELETE);
    let loaded = dlopen_next(FACADE_NAME, flags | libc::RTLD_NOLOAD);
    if !loaded.is_null() {
        return loaded;
    }
    // Containers may refuse memfds, and systems may refuse to run what is in them.
    let loaded = load(memfd(), flags).or_else(|_| load(nameless(), flags));
    loaded.unwrap_or_else(|error| {
        complain("libibverbs cannot be opened", &error);
        std::ptr::null_mut()
    })
}

fn memfd() -> io::Result<File> {
    let made = rustix::fs::memfd_create(FACADE_NAME, MemfdFlags::CLOEXEC)?;
    Ok(File::from(made))
}

/// A file in the run directory that nobody else can open.
fn nameless() -> io::Result<File> {
    let run_dir = settings::run_dir();
    // As the NIC makes it, which may be opened only later.
    let mut maker = fs::DirBuilder::new();
    maker.recursive(true).mode(0o700).create(&run_dir)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = rustix::fs::open(&run_dir, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(made))
}

/// Writes the facade to a file and loads it from there.
fn load(file: io::Result<File>, flags: c_int) -> io::Result<*mut c_void> {
    let mut file = file?;
    file.write_all(&FACADE)?;
    // The dynamic linker takes a library of the same name for the same one without opening it. Others load theirs from
    // `/proc/self/fd/N`, and may have closed it since, so that the number is ours now. Nobody else spells it so.
    let path = format!("/proc/self/fd/../fd/{}\0", file.as_raw_fd());
    let path = CStr::from_bytes_with_nul(path.as_bytes()).expect("one zero");
    let opened = dlopen_next(path, flags);
    match opened.is_null() {
        true => Err(io::Error::other("the system does not map its file")),
        false => Ok(opened),
    }
}

/// Keeps its arguments over a look at the name, and goes on to the next `dlopen` with the stack as it was.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {answer}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "jmp rdx",
        "2:",
        "ret",
        answer = sym answer,
    )
}

/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {answer}",
        "mov x9, x0",
        "mov x16, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbnz x9, 2f",
        "br x16",
        "2:",
        "mov x0, x9",
        "ret",
        answer = sym answer,
    )
}
