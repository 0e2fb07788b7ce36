//! What a program's device is like.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use verbs::Gid;
use verbs::decorate::FaultPlan;

use super::forms::Form;
use crate::cli::{parse_host_address, run_dir};

/// The device that programs see.
#[derive(Args, Debug, Clone)]
pub(crate) struct DeviceFlags {
    /// The device's address, an IP address. Programs with different ones are like programs of different
    /// hosts [default: those of this host, and 127.0.0.1 first].
    #[arg(long, value_name = "ADDRESS", value_parser = parse_host_address)]
    pub(crate) gid: Option<Gid>,
    /// Where the programs of this host meet [default: $XDG_RUNTIME_DIR/vervain, or
    /// /tmp/vervain-UID].
    #[arg(long, value_name = "PATH")]
    run_dir: Option<PathBuf>,
    /// Write a line into this file for each request, completion and change of a queue pair, with the
    /// place in the program that asked for it; an object of JSON a line if its name ends in .jsonl.
    #[arg(long, value_name = "FILE", help_heading = "What no card can do")]
    pub(crate) trace: Option<PathBuf>,
    /// Find misuse of verbs that a card punishes by silence or corruption: findings on standard error, and in FILE too, as
    /// an object of JSON a line if its name ends in .json or .jsonl. After errors the program exits with 99, or what
    /// VERVAIN_CHECK_EXIT says.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-",
        help_heading = "What no card can do"
    )]
    pub(crate) check: Option<PathBuf>,
    /// Let things go wrong, such as `rc-error=0.1%`, `ud-drop=2%`, `rc-error@17` (request 17 of each
    /// queue pair, from 0), `qp2: kill@5`; several with commas between them. `@FILE` reads them from a file, one a
    /// line. What there is: docs/faults.md.
    #[arg(long, value_name = "SPEC", value_parser = faults, help_heading = "What no card can do")]
    pub(crate) faults: Option<String>,
    /// Has the same faults happen again, or others.
    #[arg(
        long,
        value_name = "N",
        requires = "faults",
        help_heading = "What no card can do"
    )]
    pub(crate) seed: Option<u64>,
}

/// A plan of faults that makes sense, as it was said, or as it stands in the file that was named, on one line.
fn faults(said: &str) -> Result<String, String> {
    let text = match said.strip_prefix('@') {
        None => said.to_string(),
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?
        }
    };
    text.parse::<FaultPlan>()?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let lines = lines.map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.collect::<Vec<_>>().join(","))
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
  eval \"$(vervain env)\"                              sh, bash, zsh
  vervain env --format fish | source                 fish
  vervain env --format github >> \"$GITHUB_ENV\"       the later steps of a job on GitHub
Programs that are started afterwards see the device vervain0. `vervain run` also says why a program
cannot be run so; with these variables alone such a program sees no device.")]
pub(crate) struct EnvFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,
    /// Who reads it. `--json` prints an object.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Shell)]
    pub(crate) format: Form,
}

/// `vervain devices`.
#[derive(Args, Debug)]
pub(crate) struct DevicesFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_in_a_file_is_put_on_one_line() {
        let name = format!("vervain-faults-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let said = format!("@{}", path.display());
        std::fs::write(&path, "# the third\nqp2: rc-error@5 # first\n\nseed=7\n").expect("a file");
        let line = faults(&said);
        std::fs::write(&path, "rc-eror@5\n").expect("a file");
        let wrong = faults(&said);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(line, Ok("qp2: rc-error@5,seed=7".to_string()));
        assert!(wrong.is_err_and(|why| why.contains("rc-eror: no such fault")));
        assert!(faults(&said).is_err_and(|why| why.contains("cannot read")));
    }
}
