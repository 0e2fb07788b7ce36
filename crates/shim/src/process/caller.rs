//! Where in the program this library was called from.
//!
//! Return addresses are taken when it happens, which is cheap, and get their names when somebody is told of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::process::{Kept, aside};

/// Frames of the program that a [`Stack`] keeps, the innermost ones.
const DEPTH: usize = 12;

/// The program's frames at a call of this library, innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Stack {
    frames: [usize; DEPTH],
    len: usize,
}

impl Stack {
    /// The calling thread's. Allocates only when a thread calls this first.
    ///
    /// Cost: some microseconds for unwinding; less where the thread was called in the same way before.
    #[inline(never)]
    pub(crate) fn here() -> Stack {
        let place = 0u8;
        let known = KNOWN.try_with(|known| {
            let mut known = known.try_borrow_mut().ok()?;
            Some(known.look_up((&raw const place).addr()))
        });
        match known {
            Ok(Some(stack)) => stack,
            // The thread ends, or this is a signal's handler.
            _ => unwind(|_, _| {}),
        }
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

/// Unwinds the calling thread's stack, and has `note` hear of each return address and of where it lies.
fn unwind(mut note: impl FnMut(usize, usize)) -> Stack {
    let mut stack = Stack::default();
    let ours = this_library();
    let each = |frame: &backtrace::Frame| {
        let at = frame.ip() as usize;
        // The last frame of all has none.
        if at != 0 {
            note(at, (frame.sp() as usize).wrapping_sub(size_of::<usize>()));
        }
        if at != 0 && (stack.len > 0 || !ours.contains(&at)) {
            // What it returns to is behind the call.
            stack.frames[stack.len] = at - 1;
            stack.len += 1;
        }
        stack.len < DEPTH
    };
    // Not with the lock of `backtrace`, which nobody gives back in a forked child.
    // SAFETY: unwinding needs no lock on Linux.
    unsafe { backtrace::trace_unsynchronized(each) };
    stack
}

/// Ways to call this library that a thread remembers.
const WAYS: usize = 16;
/// Return addresses of such a way, with this library's own.
const WAY: usize = 32;

thread_local! {
    static KNOWN: RefCell<Kept<Known>> = const { RefCell::new(Kept::new(Known { ways: Vec::new(), unwound: 0 })) };
}

/// Stacks that were unwound before.
struct Known {
    ways: Vec<Way>,
    /// How often a stack had to be unwound.
    unwound: u64,
}

/// One of them: it is the same again when all return addresses lie where they did, because the innermost one's place and those
/// between them follow from each other.
#[derive(Clone, Copy)]
struct Way {
    /// Where the innermost frame was.
    from: usize,
    /// Return addresses, and where they lie, innermost first.
    returns: [(usize, usize); WAY],
    /// None when it cannot be told again.
    len: usize,
    stack: Stack,
}

impl Known {
    fn look_up(&mut self, from: usize) -> Stack {
        let index = from / 16 % WAYS;
        if let Some(way) = self.ways.get(index)
            && way.from == from
            && way.is_same()
        {
            return way.stack;
        }
        let mut way = Way {
            from,
            returns: [(0, 0); WAY],
            len: 0,
            stack: Stack::default(),
        };
        let mut is_told = cfg!(target_arch = "x86_64");
        way.stack = unwind(|returns, place| {
            // Frames within this function differ each time, and lie below.
            if place > from && is_told {
                is_told = way.len < WAY && place.is_multiple_of(size_of::<usize>());
                // SAFETY: a word of this thread's stack, between here and where it begins.
                is_told = is_told && unsafe { (place as *const usize).read_volatile() } == returns;
                if is_told {
                    way.returns[way.len] = (returns, place);
                    way.len += 1;
                }
            }
        });
        if !is_told {
            way.len = 0;
        }
        if self.ways.is_empty() {
            self.ways = vec![Way { from: 0, ..way }; WAYS];
        }
        self.ways[index] = way;
        self.unwound += 1;
        way.stack
    }
}

impl Way {
    fn is_same(&self) -> bool {
        // From the innermost one on: as long as those before it are the same, the next one is still part of the stack.
        let mut returns = self.returns[..self.len].iter();
        // SAFETY: as above.
        self.len > 0
            && returns.all(
                |(returns, place)| unsafe { (*place as *const usize).read_volatile() } == *returns,
            )
    }
}

/// The innermost frame outside of this library.
pub(crate) fn caller() -> Option<usize> {
    let ours = this_library();
    let mut found = None;
    let each = |frame: &backtrace::Frame| {
        let at = frame.ip() as usize;
        let is_ours = ours.contains(&at);
        if !is_ours {
            // What it returns to is behind the call.
            found = Some(at - 1);
        }
        is_ours
    };
    // SAFETY: as above.
    unsafe { backtrace::trace_unsynchronized(each) };
    found
}

/// Names of addresses that were looked up. Its lock is also that of the looking up.
pub(crate) static PLACES: Mutex<Places> = Mutex::new(None);

pub(crate) type Places = Option<HashMap<usize, String>>;

/// Keeps all others from looking names up.
pub(crate) fn hold() -> MutexGuard<'static, Places> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address in the program by name: function, file and line where the program knows them, else the object and the
/// offset in it. Looked up once each.
pub(crate) fn place(at: usize) -> String {
    aside(|| {
        let mut places = hold();
        let places = places.get_or_insert_default();
        places.entry(at).or_insert_with(|| describe(at)).clone()
    })
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
    let note = |symbol: &backtrace::Symbol| {
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
    };
    // Not with the lock of `backtrace`, which nobody gives back in a forked child.
    // SAFETY: the lock of the names is held, and nobody else looks any up.
    unsafe { backtrace::resolve_unsynchronized(at as *mut c_void, note) };
    text.unwrap_or_else(|| nearest(at))
}

/// The beginning of glibc's `struct link_map` (link.h).
#[repr(C)]
struct LinkMap {
    l_addr: usize,
}

/// What is asked of `dladdr1` besides: a pointer to the [`LinkMap`] (dlfcn.h).
const RTLD_DL_LINKMAP: c_int = 2;

unsafe extern "C" {
    fn dladdr1(
        at: *const c_void,
        found: *mut libc::Dl_info,
        besides: *mut *mut c_void,
        what: c_int,
    ) -> c_int;
}

/// Where an address without a name lies.
fn nearest(at: usize) -> String {
    // SAFETY: numbers and pointers, which are written.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let mut map: *mut LinkMap = std::ptr::null_mut();
    // SAFETY: any address may be asked for; what is written is one pointer.
    let is_found = unsafe {
        dladdr1(
            at as *mut c_void,
            &raw mut found,
            (&raw mut map).cast(),
            RTLD_DL_LINKMAP,
        )
    } != 0;
    if !is_found || found.dli_fname.is_null() || map.is_null() {
        return format!("{at:#x}");
    }
    // SAFETY: the name of a loaded object, with a zero at its end.
    let name = unsafe { std::ffi::CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    let name = Path::new(&*name).file_name().unwrap_or_default();
    // What was added to the addresses of the file: nothing, if it is not position-independent.
    // SAFETY: of a loaded object.
    let offset = at.wrapping_sub(unsafe { (*map).l_addr });
    format!("{}+{offset:#x}", name.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwound() -> u64 {
        KNOWN.with_borrow(|known| known.unwound)
    }

    #[inline(never)]
    fn one() -> Stack {
        std::hint::black_box(Stack::here())
    }

    #[test]
    fn a_way_that_was_taken_before_is_not_unwound_again() {
        let before = unwound();
        let mut stacks = Vec::new();
        for _ in 0..std::hint::black_box(9) {
            stacks.push(one());
        }
        assert!(stacks.iter().all(|stack| *stack == stacks[0]));
        let again = unwound() - before;
        let expected = if cfg!(target_arch = "x86_64") { 1 } else { 9 };
        assert_eq!(again, expected);
    }
}
