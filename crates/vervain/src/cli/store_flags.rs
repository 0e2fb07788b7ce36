//! The flags of `vervain store`.

use std::path::PathBuf;

use bench::units;
use clap::{Args, Subcommand};

/// `vervain store`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vervain store create my.store --size 10G     a store in a file
  vervain store set my.store greeting hello    the value of a key
  vervain store get my.store greeting
  vervain store inspect my.store               what it was formatted with, its segments
  vervain store export my.store > backup       every key, as `set` commands of memcached
  vervain store check my.store                 reads everything; exits with 1 if it is damaged")]
pub(crate) struct StoreFlags {
    #[command(subcommand)]
    pub(crate) what: StoreWhat,
}

#[derive(Subcommand, Debug)]
pub(crate) enum StoreWhat {
    /// Make a store in a new file, or on a drive that holds nothing.
    Create(StoreCreate),
    /// Print values. Exits with 1 if any is missing.
    Get(StoreKeys),
    /// Store a value.
    Set(StoreSet),
    /// Remove keys. Exits with 1 if any was missing.
    Del(StoreKeys),
    /// Print what the store was formatted with, and what its segments hold.
    Inspect(StoreInspect),
    /// Read everything and say what is damaged. Exits with 1 if anything is.
    Check(StoreFile),
    /// Write damaged superblocks and headers anew, and give up records that are damaged.
    Repair(StoreRepair),
    /// Write every key to standard output, as `set` commands of memcached's protocol.
    Export(StoreFile),
    /// Store what `export` has written, from standard input.
    Import(StoreFile),
}

/// Which store.
#[derive(Args, Debug)]
pub(crate) struct StoreFile {
    /// The store's file or drive.
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
}

/// `vervain store create`.
#[derive(Args, Debug)]
pub(crate) struct StoreCreate {
    #[command(flatten)]
    pub(crate) file: StoreFile,
    /// Bytes of a new file; a drive has its own size.
    #[arg(long, value_name = "SIZE", default_value = "1G",
          value_parser = units::size_of::<{ 1 << 20 }, { 1 << 50 }>)]
    pub(crate) size: usize,
    /// Bytes of a segment, a power of two. The longest record fits into one, and room is made a
    /// segment at a time [default: such that there are 128 to 256, between 64K and 1G].
    #[arg(long, value_name = "SIZE",
          value_parser = units::size_of::<{ 64 << 10 }, { 1 << 30 }>)]
    pub(crate) segment: Option<usize>,
    /// Make a cache: when it is full, it forgets what was not used for long.
    #[arg(long)]
    pub(crate) cache: bool,
    /// Make it whatever the file or drive holds, unless that is a store, or may be one.
    #[arg(long)]
    pub(crate) force: bool,
}

/// `vervain store get` and `del`.
#[derive(Args, Debug)]
pub(crate) struct StoreKeys {
    #[command(flatten)]
    pub(crate) file: StoreFile,
    /// The keys.
    #[arg(value_name = "KEY", required = true)]
    pub(crate) keys: Vec<String>,
}

/// `vervain store set`.
#[derive(Args, Debug)]
pub(crate) struct StoreSet {
    #[command(flatten)]
    pub(crate) file: StoreFile,
    /// The key.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The value; `-` reads it from standard input.
    #[arg(value_name = "VALUE")]
    pub(crate) value: String,
}

/// `vervain store inspect`.
#[derive(Args, Debug)]
pub(crate) struct StoreInspect {
    #[command(flatten)]
    pub(crate) file: StoreFile,
    /// Every record too, current or not.
    #[arg(long)]
    pub(crate) records: bool,
}

/// `vervain store repair`.
#[derive(Args, Debug)]
pub(crate) struct StoreRepair {
    #[command(flatten)]
    pub(crate) file: StoreFile,
    /// Do it; without this, only say what would be done.
    #[arg(long)]
    pub(crate) yes: bool,
}
