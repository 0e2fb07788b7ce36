//! Names for the steps of a process at which it is cut.

use std::fmt;
use std::str::FromStr;

/// Which side of a system call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Side {
    /// Before the kernel carries it out.
    Enter,
    /// After that, before the process knows.
    Leave,
}

/// Where a thread is, before instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Spot {
    /// At its n-th system call. Calls that only wait are not counted, for how often a thread waits
    /// is a matter of luck.
    Call(u32),
    /// At its n-th mark, by which a victim says that its data path begins.
    Mark(u32),
}

/// A step of a process: a thread's system call, or a number of instructions after one or after a
/// mark.
///
/// Written as `THREAD/CALL/enter`, `THREAD/CALL/leave`, `THREAD/CALL/leave+INSTRUCTIONS` or
/// `THREAD/mMARK/leave+INSTRUCTIONS`. All are counted from 0, threads in the order of their birth.
/// A thread that calls the system again, or whose data path is over, before it has come to so many
/// instructions is cut there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Step {
    pub(crate) thread: usize,
    pub(crate) spot: Spot,
    pub(crate) side: Side,
    pub(crate) instructions: u32,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Enter => "enter",
            Side::Leave => "leave",
        };
        match self.spot {
            Spot::Call(call) => write!(f, "{}/{call}/{side}", self.thread)?,
            Spot::Mark(mark) => write!(f, "{}/m{mark}/{side}", self.thread)?,
        }
        if self.instructions > 0 {
            write!(f, "+{}", self.instructions)?;
        }
        Ok(())
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no step; write 0/37/enter, 0/37/leave or 0/37/leave+9");
        let mut parts = text.split('/');
        let (Some(thread), Some(call), Some(side), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let (side, instructions) = match side.split_once('+') {
            Some((side, count)) => (side, count.parse().map_err(|_| wrong())?),
            None => (side, 0),
        };
        let spot = match call.strip_prefix('m') {
            Some(mark) if instructions > 0 => Spot::Mark(mark.parse().map_err(|_| wrong())?),
            _ => Spot::Call(call.parse().map_err(|_| wrong())?),
        };
        let side = match side {
            "enter" if instructions == 0 => Side::Enter,
            "leave" => Side::Leave,
            _ => return Err(wrong()),
        };
        Ok(Step {
            thread: thread.parse().map_err(|_| wrong())?,
            spot,
            side,
            instructions,
        })
    }
}

#[test]
fn steps_are_written_as_they_are_read() {
    for text in ["0/37/enter", "3/0/leave", "12/5/leave+1234", "1/m3/leave+7"] {
        let step: Step = text.parse().expect("a step");
        assert_eq!(step.to_string(), text);
    }
    for text in [
        "",
        "0/37",
        "0/37/enter+3",
        "0/x/enter",
        "0/1/leave/2",
        "0/m1/leave",
        "0/1/left",
    ] {
        assert!(text.parse::<Step>().is_err(), "{text}");
    }
}
