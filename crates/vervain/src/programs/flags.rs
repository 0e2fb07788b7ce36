//! What a program's device is like.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use verbs::Gid;

use crate::cli::{parse_gid, run_dir};

/// The device that programs see.
#[derive(Args, Debug, Clone)]
pub(crate) struct DeviceFlags {
    /// The device's address: an IP address or any name. Programs with different ones are like
    /// programs of different hosts [default: 127.0.0.1].
    #[arg(long, value_name = "NAME", value_parser = parse_gid)]
    pub(crate) gid: Option<Gid>,
    /// Where the programs of this host meet [default: $XDG_RUNTIME_DIR/vervain, or
    /// /tmp/vervain-UID].
    #[arg(long, value_name = "PATH")]
    run_dir: Option<PathBuf>,
}

impl DeviceFlags {
    pub(crate) fn run_dir(&self) -> PathBuf {
        run_dir(self.run_dir.as_deref())
    }
}

/// `vervain run`.
#[derive(Args, Debug)]
#[command(
    after_help = "The program sees one device, vervain0. It needs no root, no kernel module and no capability. \
Programs of one user on this host that run so reach each other. Examples:
  vervain run ibv_devinfo
  vervain run ib_write_bw                    the server; then, in another terminal:
  vervain run ib_write_bw localhost          the client
  vervain run --gid 10.0.0.1 -- ./server     as on a host of that address"
)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,
    /// The program, and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub(crate) program: Vec<OsString>,
}

/// `vervain env`.
#[derive(Args, Debug)]
#[command(after_help = "For shells and CI, where all programs are to run so:
  eval \"$(vervain env)\"
  ibv_devices")]
pub(crate) struct EnvFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,
}

/// `vervain devices`.
#[derive(Args, Debug)]
pub(crate) struct DevicesFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,
}
