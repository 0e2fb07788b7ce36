//! The whole program: real `vervain` processes, spoken to over their NIC, sockets and signals.
//!
//! | file | what |
//! | --- | --- |
//! | `../harness` | servers, commands, shells and raw connections, all bounded and cleaned up |
//! | `beside` | random conversations with memcached and the product, compared; the door's corpus |
//! | `bench_store` | the benchmarks of the store, with tiny inputs |
//! | `bugs_page` | docs/bugs.md: its commands say what it says |
//! | `ci_examples` | what strangers copy into their CI, run in a clean directory |
//! | `cli` | the command line as a stranger uses it |
//! | `programs` | other people's verbs programs, started with `vervain run` |
//! | `without_libibverbs` | the same on a machine that has no libibverbs |
//! | `refusals` | what is said when something cannot be done |
//! | `door` | the Memcache door over raw sockets |
//! | `filesystem`, `filesystem_care` | a file system behind NFS, mounted by a kernel; what those need who run it |
//! | `filesystem_files`, `between` | files that come and go while calls and connections break; who breaks them |
//! | `judges` | programs that nobody here wrote, over that mount; the kernel's own server |
//! | `io` | kernels that refuse io_uring or memfd_create; io_uring and epoll |
//! | `idle` | what a server without work costs |
//! | `memcached` | memcached itself, to compare with |
//! | `measure` | the benchmarks, with tiny inputs |
//! | `signals` | SIGTERM, SIGINT, SIGSTOP |
//! | `soak` | the soak passes a correct cache and catches one that lies |
//! | `store`, `store_door` | stores in files; one behind the Memcache door |
//! | `rust_helper` | the crate `vervain-test`, as other people's tests use it |
//! | `wheel` | the Python package: built, installed, used by pytest |
//! | `peers` | memcached's clients and HERD together, while processes are killed |
//! | `foreign` | other people's programs: memccapable, libmemcached's others, and the Python client of `peers` |
//!
//! Tests with other people's programs say that they are left out where those are missing, and
//! fail instead when `VERVAIN_TEST_PEERS` is `required`.

mod bench_store;
mod beside;
mod between;
mod bugs_page;
mod ci_examples;
mod cli;
mod door;
mod filesystem;
mod filesystem_care;
mod filesystem_drive;
mod filesystem_files;
mod foreign;
#[path = "../harness/mod.rs"]
mod harness;
mod idle;
mod io;
mod judges;
mod measure;
mod memcached;
mod peers;
mod programs;
mod refusals;
mod rust_helper;
mod signals;
mod soak;
mod store;
mod store_door;
mod wheel;
mod without_libibverbs;
