//! The flags of `vervain fs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use bench::units;
use clap::{Args, Subcommand, ValueEnum};
use nfs::server::Network;

/// The port of NFS: clients look there if they are told none.
const PORT: u16 = 2049;

/// `vervain fs`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vervain fs serve --data files                a file system in the directory `files`, made if it is not there
  sudo mount -t nfs4 127.0.0.1:/ /mnt          its client: any machine's own (port 2049 needs no root here)
  vervain fs put notes.txt /                   without a mount, root or a kernel module
  vervain fs ls /
  vervain fs serve --data files --listen 0.0.0.0:2049 --allow 10.0.0.0/8 --squash none")]
pub(crate) struct FsFlags {
    #[command(subcommand)]
    pub(crate) what: FsWhat,
}

#[derive(Subcommand, Debug)]
pub(crate) enum FsWhat {
    /// Make a file system in an empty directory.
    Format(FsFormat),
    /// Serve a file system over NFSv4, and make it first if there is none.
    Serve(FsServe),
    /// List directories of a served file system.
    Ls(FsPaths),
    /// Write a file to a served file system; durable when it ends.
    Put(FsPut),
    /// Read a file of a served file system.
    Get(FsGet),
    /// Make directories.
    Mkdir(FsPaths),
    /// Remove files and empty directories. Exits with 1 if any was missing.
    Rm(FsPaths),
    /// Print how much room there is.
    Df(FsPaths),
}

/// Which server.
#[derive(Args, Debug)]
pub(crate) struct FsServer {
    /// Where the file system is served.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2049")]
    pub(crate) server: SocketAddr,
}

impl FsServer {
    pub(crate) const fn address(&self) -> SocketAddr {
        self.server
    }
}

/// Paths of a served file system.
#[derive(Args, Debug)]
pub(crate) struct FsPaths {
    #[command(flatten)]
    pub(crate) server: FsServer,
    /// Paths from the root of what is exported.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

/// `vervain fs put`.
#[derive(Args, Debug)]
pub(crate) struct FsPut {
    #[command(flatten)]
    pub(crate) server: FsServer,
    /// A file of this machine; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// Where to: a directory, or the file's new path.
    #[arg(value_name = "PATH")]
    pub(crate) to: String,
}

/// `vervain fs get`.
#[derive(Args, Debug)]
pub(crate) struct FsGet {
    #[command(flatten)]
    pub(crate) server: FsServer,
    /// The file's path.
    #[arg(value_name = "PATH")]
    pub(crate) from: String,
    /// A file of this machine; standard output if it is not given, or `-`.
    #[arg(value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

/// Where a file system is, and how large one is made.
#[derive(Args, Debug)]
pub(crate) struct FsData {
    /// The directory that holds the file system.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Bytes of a new file system's data, which are allocated at once.
    #[arg(long, value_name = "SIZE", default_value = "4G",
          value_parser = units::size_of::<{ 64 << 20 }, { 1 << 50 }>)]
    pub(crate) size: usize,
}

/// `vervain fs format`.
#[derive(Args, Debug)]
pub(crate) struct FsFormat {
    #[command(flatten)]
    pub(crate) data: FsData,
}

/// Whose users are nobody.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SquashKind {
    /// Nobody's: a client's root is root.
    None,
    /// Its root.
    Root,
    /// All of them.
    All,
}

/// `vervain fs serve`.
#[derive(Args, Debug)]
pub(crate) struct FsServe {
    #[command(flatten)]
    pub(crate) data: FsData,
    /// Where NFS is served. If the port of an address of this machine alone is taken and was not asked for, the next free one is used.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// The path that clients mount.
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) export: String,
    /// Which of the clients' users become nobody; root by default, unless only this machine is served.
    #[arg(long, value_name = "WHO")]
    pub(crate) squash: Option<SquashKind>,
    /// Clients that may mount, an address or a network such as 10.0.0.0/8; may be given again. All that can connect, by default.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) allow: Vec<Network>,
    /// Refuse all changes.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Memory for files' pages.
    #[arg(long, value_name = "SIZE", default_value = "256M",
          value_parser = units::size_of::<0, { 1 << 45 }>)]
    pub(crate) cache: usize,
    /// How long a silent client keeps what it has open and locked, and how long clients have after a restart to claim that again, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "90", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) lease: u32,
}

impl FsServe {
    /// The addresses to try, in order.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match self.listen {
            Some(address) => vec![address],
            None => {
                let port = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                (PORT..PORT + 16).map(port).chain([port(0)]).collect()
            }
        }
    }
}
