//! Debian's kernel in a virtual machine, for clients that only a kernel is: a file system's kernel
//! client needs root and a module, and a test must not ask the machine for either.
//!
//! An [`Image`] is a kernel and a root directory in memory with busybox and the modules of an NFSv4
//! client. It is made once from packages of Debian (`qemu-system-x86`, `busybox-static`, `cpio`,
//! `kmod`, `xz-utils`, and a kernel that `apt-get download` fetches) and kept. A [`Job`] is a shell
//! script and the programs it needs; [`Image::run`] boots the machine, runs the script as root, and
//! powers off: 15 to 30 seconds, by emulation, since machines that test are often virtual themselves.
//! [`Image::start`] lets the host listen meanwhile. The guest reaches the host's 127.0.0.1 as 10.0.2.2;
//! nobody reaches the guest, but through what [`Job::forward`] opens.
//!
//! | module | what |
//! | --- | --- |
//! | `image` | the kernel, its modules, and the root directory |
//! | `job` | a script, what it needs, and what it said |
//! | `machine` | a machine that does a job, while the host listens |
#![forbid(unsafe_code)]

mod image;
mod job;
mod machine;

pub use image::{Image, missing};
pub use job::{HOST, Job, Said};
pub use machine::Machine;
