//! The flags of `vervain fs`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

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
    Mkdir(FsSome),
    /// Remove files and empty directories. Exits with 1 if any was missing.
    Rm(FsSome),
    /// Print how much room there is.
    Df(FsPaths),
    /// Read everything of a file system that is not served, and say what is damaged. Exits with 0 if all is sound,
    /// 1 if not, and 2 if it could not be looked at.
    Check(FsCheck),
    /// Print what a served file system does and holds.
    Status(FsAbout),
    /// Show on a terminal what a served file system does, over and over.
    Top(FsTop),
    /// List the volumes of a file system, or make one.
    Volume(FsVolume),
    /// Set what a volume may use.
    Quota(FsQuota),
}

/// `vervain fs check`.
#[derive(Args, Debug)]
pub(crate) struct FsCheck {
    /// The directory that holds the file system.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
}

/// Which served file system is asked about itself.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct FsAbout {
    /// The directory that a process of this machine serves.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// What was given to `fs serve --metrics`, of any machine.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<SocketAddr>,
}

/// `vervain fs top`.
#[derive(Args, Debug)]
pub(crate) struct FsTop {
    #[command(flatten)]
    pub(crate) about: FsAbout,
    /// How often it looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    pub(crate) every: Duration,
    /// Look so many times, and end.
    #[arg(long, value_name = "N")]
    pub(crate) times: Option<u64>,
}

/// `vervain fs volume`.
#[derive(Args, Debug)]
pub(crate) struct FsVolume {
    #[command(subcommand)]
    pub(crate) what: FsVolumeWhat,
}

#[derive(Subcommand, Debug)]
pub(crate) enum FsVolumeWhat {
    /// List them: what they use, and what they may.
    Ls(FsVolumeLs),
    /// Make one. It is served from the next start of `fs serve` on.
    Create(FsQuota),
}

/// `vervain fs volume ls`.
#[derive(Args, Debug)]
pub(crate) struct FsVolumeLs {
    /// The directory that holds the file system, served or not.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
}

/// A volume, and what it may use.
#[derive(Args, Debug)]
pub(crate) struct FsQuota {
    /// The directory that holds the file system, served or not.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// The volume's name; the first one's is `main`.
    #[arg(value_name = "VOLUME")]
    pub(crate) name: String,
    /// Bytes that its files may occupy, such as 10G; without this flag as many as there are.
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) bytes: Option<u64>,
    /// Files, directories and other objects, its root among them; without this flag as many as fit.
    #[arg(long, value_name = "N", value_parser = files)]
    pub(crate) files: Option<u64>,
}

/// Which server.
#[derive(Args, Debug)]
pub(crate) struct FsServer {
    /// Where the file system is served.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2049")]
    pub(crate) server: SocketAddr,
    /// How long to try again while the server restarts, or has its clients claim what they had before that, and how long
    /// an answer may take. 10 s, 120 s and 60 s, if it is not given.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) timeout: Option<Duration>,
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

/// Paths of a served file system, one at least.
#[derive(Args, Debug)]
pub(crate) struct FsSome {
    #[command(flatten)]
    pub(crate) server: FsServer,
    /// Paths from the root of what is exported.
    #[arg(value_name = "PATH", required = true)]
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
    /// The drive that the data is on, whole, instead of a file of the directory: its name below /dev/disk/by-id stays
    /// the same from start to start. The directory holds names and attributes then.
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    pub(crate) drive: Option<PathBuf>,
    /// Take the drive whatever it holds. What it holds is lost.
    #[arg(long, requires = "drive")]
    pub(crate) force: bool,
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
    /// Where NFS is served; may be given again, or be a list with commas: all addresses lead to the same files, locks and
    /// sessions. 127.0.0.1:2049 by default, or the next port if that is taken.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) listen: Vec<SocketAddr>,
    /// The path that clients mount. With more volumes than the first, each has its name below it.
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) export: String,
    /// Which of the clients' users become nobody; root by default, unless only this machine is served.
    #[arg(long, value_name = "WHO")]
    pub(crate) squash: Option<SquashKind>,
    /// Clients that may mount, an address or a network such as 10.0.0.0/8; may be given again. All that can connect, by default.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) allow: Vec<Network>,
    /// Where to tell what it does: Prometheus asks for /metrics there, `fs status --from` for /status. To everybody who can
    /// connect.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Write calls to the log that take so many milliseconds or more, with what they waited for.
    #[arg(long, value_name = "MILLIS", value_parser = milliseconds)]
    pub(crate) slow: Option<u64>,
    /// Refuse all changes.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Memory for files' pages.
    #[arg(long, value_name = "SIZE", default_value = "256M",
          value_parser = units::size_of::<0, { 1 << 45 }>)]
    pub(crate) cache: usize,
    /// How long a silent client keeps what it has open and locked, and how long clients have after a restart to claim that again, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "90", value_parser = lease_seconds)]
    pub(crate) lease: u32,
}

impl FsServe {
    /// The addresses to try in order, where none was asked for.
    pub(crate) fn addresses() -> impl Iterator<Item = SocketAddr> {
        let port = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        (PORT..PORT + 16).map(port).chain([port(0)])
    }
}

/// A whole number within bounds; what is wrong with a text says what it takes.
fn whole(text: &str, (least, most): (u64, u64), what: &str) -> Result<u64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("it takes {what}"))
}

fn milliseconds(text: &str) -> Result<u64, String> {
    whole(text, (1, u64::MAX), "milliseconds, such as 100")
}

fn files(text: &str) -> Result<u64, String> {
    whole(text, (1, u64::MAX), "a number of files, such as 100000")
}

fn lease_seconds(text: &str) -> Result<u32, String> {
    let seconds = whole(text, (1, 3600), "seconds, from 1 to 3600")?;
    u32::try_from(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_are_told_what_is_taken() {
        assert_eq!(milliseconds("100"), Ok(100));
        for wrong in ["abc", "0", "-1", "1.5", ""] {
            let error = milliseconds(wrong).expect_err(wrong);
            assert!(error.contains("such as 100"), "{error}");
            assert!(files(wrong).is_err() && lease_seconds(wrong).is_err());
        }
        assert_eq!((lease_seconds("3600"), files("7")), (Ok(3600), Ok(7)));
        assert!(lease_seconds("3601").is_err());
    }
}
