//! The runtime from outside.

mod alloc;
mod cross;
mod idle;
mod manual;
mod sockets;
mod sync;
mod tasks;
mod threads;

/// The back ends that this machine has: epoll always, io_uring where it is not refused.
fn back_ends() -> Vec<rt::IoKind> {
    let default = rt::Core::new(rt::Config::default()).unwrap().io_kind();
    let mut kinds = vec![rt::IoKind::Epoll];
    if default == rt::IoKind::Uring {
        kinds.push(rt::IoKind::Uring);
    }
    kinds
}
