//! A kernel that does not copy between processes, as under a filter of system calls that has no process_vm_readv.

/// Has the kernel refuse to copy for this thread and those that it starts. Where all tests are one thread's, the kernel
/// copies for none that comes after, and those pass too.
pub(crate) fn refuse_copying() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    // SAFETY: they only fill a structure in.
    let mut filter = unsafe {
        [
            libc::BPF_STMT(LOAD, 0),
            libc::BPF_JUMP(IS, libc::SYS_process_vm_readv as u32, 1, 0),
            libc::BPF_JUMP(IS, libc::SYS_process_vm_writev as u32, 0, 1),
            libc::BPF_STMT(RETURN, refused),
            libc::BPF_STMT(RETURN, libc::SECCOMP_RET_ALLOW),
        ]
    };
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: plain numbers, and a filter that the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}
