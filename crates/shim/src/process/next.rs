//! The function that the program would have called without this library: libc's, or that of a library which is
//! loaded before libc as this is.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next library's function of a name.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address; looked up once.
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: a name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // These are libc's, which is always there.
        assert!(!found.is_null(), "{:?} is in no library", self.name);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the next library's function.
macro_rules! next {
    ($name:literal, fn($($type:ty),*) -> $result:ty, $($argument:expr),*) => {{
        static NEXT: $crate::process::Next = $crate::process::Next::new($name);
        // SAFETY: libc's function of this name has this type; the arguments are the caller's own.
        unsafe {
            let function: unsafe extern "C-unwind" fn($($type),*) -> $result =
                std::mem::transmute(NEXT.get());
            function($($argument),*)
        }
    }};
}
pub(crate) use next;
