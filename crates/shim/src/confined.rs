//! What the process may not do.

use std::sync::Once;

/// Says once on standard error that peers cannot reach memory which is not born shared, where the kernel is not to copy
/// (a filter of system calls without `process_vm_readv`). Where it may, that is one system call, once.
pub(crate) fn tell_if_unreachable() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        if !may_copy() {
            eprintln!(
                "vervain: this container's filter of system calls refuses process_vm_readv, so other programs cannot READ and WRITE \
memory of this one that is not whole pages of posix_memalign or mmap: allow that call (Docker: --cap-add SYS_PTRACE)"
            );
        }
    });
}

/// Whether the kernel copies between processes for this one.
fn may_copy() -> bool {
    let (from, mut to) = (1u8, 0u8);
    let vector = |at: *mut u8| libc::iovec {
        iov_base: at.cast(),
        iov_len: 1,
    };
    let (ours, theirs) = (vector(&raw mut to), vector((&raw const from).cast_mut()));
    // SAFETY: both are a byte of this process, of which one is written.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    copied == 1
}
