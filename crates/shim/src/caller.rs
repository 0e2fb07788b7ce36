//! Where in the program this library was called from.
//!
//! Return addresses are taken when it happens, which is cheap, and get their names when somebody is told of them.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Frames of the program that a [`Stack`] keeps, the innermost ones.
const DEPTH: usize = 12;

/// The program's frames at a call of this library, innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Stack {
    frames: [usize; DEPTH],
    len: usize,
}

impl Stack {
    /// The calling thread's.
    ///
    /// Cost: a microsecond or two, for unwinding. Allocates nothing.
    pub(crate) fn here() -> Stack {
        let mut stack = Stack::default();
        let ours = this_library();
        backtrace::trace(|frame| {
            let at = frame.ip() as usize;
            if at != 0 && (stack.len > 0 || !ours.contains(&at)) {
                // What it returns to is behind the call.
                stack.frames[stack.len] = at - 1;
                stack.len += 1;
            }
            stack.len < DEPTH
        });
        stack
    }

    /// Its frames by name, innermost first. What is before `main` and threads' functions is left out.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for &at in &self.frames[..self.len] {
            let name = place(at);
            let is_libcs = [
                "__libc_start_",
                "start_thread",
                "clone3",
                "__clone",
                "libc.so",
            ]
            .iter()
            .any(|start| name.starts_with(start));
            if is_libcs && !lines.is_empty() {
                break;
            }
            lines.push(name);
        }
        lines
    }
}

/// The innermost frame outside of this library.
pub(crate) fn caller() -> Option<usize> {
    let ours = this_library();
    let mut found = None;
    backtrace::trace(|frame| {
        let at = frame.ip() as usize;
        let is_ours = ours.contains(&at);
        if !is_ours {
            // What it returns to is behind the call.
            found = Some(at - 1);
        }
        is_ours
    });
    found
}

/// An address in the program by name: function, file and line where the program knows them, else the object and the
/// offset in it. Looked up once each.
pub(crate) fn place(at: usize) -> String {
    static PLACES: Mutex<Option<HashMap<usize, String>>> = Mutex::new(None);
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let places = places.get_or_insert_default();
    places.entry(at).or_insert_with(|| describe(at)).clone()
}

/// The addresses of the object that this code is in.
fn this_library() -> &'static Range<usize> {
    static OURS: OnceLock<Range<usize>> = OnceLock::new();
    OURS.get_or_init(|| {
        let mut search = (caller as *const () as usize, 0..0);
        // SAFETY: the callback gets what it is made for, and both end before this does.
        unsafe { libc::dl_iterate_phdr(Some(holds), (&raw mut search).cast()) };
        search.1
    })
}

/// Ends the search at the object that holds an address, and notes where that lies.
unsafe extern "C" fn holds(info: *mut libc::dl_phdr_info, _len: usize, data: *mut c_void) -> c_int {
    // SAFETY: what `this_library` has given.
    let search = unsafe { &mut *data.cast::<(usize, Range<usize>)>() };
    // SAFETY: the dynamic linker's description of an object, with so many headers.
    let (base, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info.dlpi_addr as usize, headers)
    };
    let loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let (mut start, mut end) = (usize::MAX, 0);
    for header in loaded {
        let from = base + header.p_vaddr as usize;
        start = start.min(from);
        end = end.max(from + header.p_memsz as usize);
    }
    let is_it = (start..end).contains(&search.0);
    if is_it {
        search.1 = start..end;
    }
    is_it.into()
}

/// A function's name, and file and line where the program knows them. `ibv_post_send` and its like are inlined in their
/// callers, of which nobody wants to hear.
fn describe(at: usize) -> String {
    let mut text: Option<String> = None;
    backtrace::resolve(at as *mut c_void, |symbol| {
        if text
            .as_ref()
            .is_some_and(|text| !text.contains("(verbs.h:"))
        {
            return;
        }
        let name = symbol.name().map(|name| name.to_string());
        let file = symbol.filename().and_then(|path| path.file_name());
        let file = file.map(|name| name.to_string_lossy().into_owned());
        text = match (name, file, symbol.lineno()) {
            (Some(name), Some(file), Some(line)) => Some(format!("{name} ({file}:{line})")),
            (Some(name), ..) => Some(name),
            _ => None,
        };
    });
    text.unwrap_or_else(|| nearest(at))
}

/// Where an address without a name lies.
fn nearest(at: usize) -> String {
    // SAFETY: numbers and pointers, which are written.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let is_found = unsafe { libc::dladdr(at as *mut c_void, &raw mut found) } != 0;
    if !is_found || found.dli_fname.is_null() {
        return format!("{at:#x}");
    }
    // SAFETY: the name of a loaded object, with a zero at its end.
    let name = unsafe { std::ffi::CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    let name = Path::new(&*name).file_name().unwrap_or_default();
    let offset = at - found.dli_fbase as usize;
    format!("{}+{offset:#x}", name.to_string_lossy())
}
