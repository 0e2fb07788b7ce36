//! System calls, for people.

use nix::libc;

/// A system call of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
}

/// Calls that only wait: how often they happen is a matter of luck.
pub(crate) fn only_waits(number: u64) -> bool {
    [
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_sched_yield,
        libc::SYS_futex,
        libc::SYS_restart_syscall,
    ]
    .contains(&(number as libc::c_long))
}

macro_rules! names {
    ($($name:ident)*) => {
        /// The names of those that a victim is likely to make.
        const NAMES: &[(libc::c_long, &str)] = &[
            $((libc::$name, stringify!($name)),)*
        ];
    };
}

names! {
    SYS_accept4 SYS_bind SYS_brk SYS_clone SYS_clone3 SYS_close SYS_connect SYS_dup SYS_epoll_create1
    SYS_epoll_ctl SYS_epoll_wait SYS_eventfd2 SYS_execve SYS_exit SYS_exit_group SYS_fallocate
    SYS_fcntl SYS_flock SYS_ftruncate SYS_getpid SYS_getppid SYS_getrandom SYS_getsockopt
    SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup SYS_ioctl SYS_listen SYS_lseek
    SYS_madvise SYS_membarrier SYS_memfd_create SYS_mkdir SYS_mmap SYS_mprotect SYS_mremap SYS_munmap
    SYS_newfstatat SYS_open SYS_openat SYS_pipe2 SYS_poll SYS_ppoll SYS_prctl SYS_process_vm_readv
    SYS_process_vm_writev SYS_read SYS_readlink SYS_recvfrom SYS_recvmsg SYS_rename SYS_rseq
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_sched_getaffinity SYS_sched_setaffinity SYS_sendmsg
    SYS_sendto SYS_set_robust_list SYS_setsockopt SYS_shutdown SYS_sigaltstack SYS_socket
    SYS_socketpair SYS_statx SYS_timerfd_create SYS_timerfd_settime SYS_unlink SYS_unlinkat SYS_write
    SYS_writev
}

impl Call {
    pub(crate) fn name(&self) -> String {
        let known = NAMES
            .iter()
            .find(|(number, _)| *number as u64 == self.number);
        match known {
            Some((_, name)) => name.trim_start_matches("SYS_").to_string(),
            None => format!("system call {}", self.number),
        }
    }
}
