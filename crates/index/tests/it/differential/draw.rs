//! What a program asks for, drawn from its seed.

use super::*;

/// The names of files and of attributes.
pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

impl Both {
    pub(super) fn caller(&mut self) -> Caller {
        if self.kind == Kind::Crash {
            return Caller::ROOT;
        }
        let mut caller = match self.rng.u8(0..5) {
            0 | 1 => Caller::ROOT,
            2 => Caller::user(10, 20),
            3 => Caller::user(11, 21),
            _ => Caller {
                groups: vec![20, 0],
                ..Caller::user(12, 22)
            },
        };
        if self.rng.u8(0..3) == 0 {
            caller.holder = Some(self.holder());
        }
        caller
    }

    pub(super) fn holder(&mut self) -> Holder {
        Holder {
            client: self.rng.u64(1..3),
            owner: self.rng.u64(1..3),
        }
    }

    pub(super) fn name(&mut self) -> Name {
        Name::new(*self.rng.choice(&NAMES).expect("some")).expect("a name")
    }

    pub(super) fn object(&mut self) -> usize {
        match self.rng.u8(0..10) {
            0..4 => self.rng.usize(0..2),
            _ => self.rng.usize(0..self.known.len()),
        }
    }

    pub(super) fn set(&mut self) -> SetAttributes {
        let rng = &mut self.rng;
        let mut set = SetAttributes::default();
        let modes = [0o777, 0o700, 0o070, 0o1777, 0o2775, 0o6755, 0o644, 0];
        if rng.u8(0..3) == 0 {
            set.mode = rng.choice(modes).map(Mode::new);
        }
        if rng.u8(0..6) == 0 {
            set.uid = rng.choice([0, 10, 11]);
        }
        if rng.u8(0..6) == 0 {
            set.gid = rng.choice([0, 20, 21]);
        }
        let times = [
            SetTime::Now,
            SetTime::To(Timestamp {
                seconds: -5,
                nanoseconds: 7,
            }),
        ];
        if rng.u8(0..6) == 0 {
            set.mtime = rng.choice(times);
        }
        if rng.u8(0..6) == 0 {
            set.atime = rng.choice(times);
        }
        set
    }

    pub(super) fn size(&mut self) -> u64 {
        let small = self.rng.u64(0..20_000);
        *self
            .rng
            .choice(&[
                0,
                1,
                4095,
                4096,
                small,
                small,
                (4 << 20) - 3 + small % 7,
                1 << 28,
            ])
            .expect("some")
    }

    pub(super) fn range(&mut self) -> Range {
        let offset = self.size();
        let len = self.rng.u64(0..9000);
        Range { offset, len }
    }

    /// A change that one transaction makes, of objects that are there.
    pub(crate) fn change(&mut self) -> (Caller, Request) {
        let (at, other) = (self.object(), self.object());
        let (name, to_name) = (self.name(), self.name());
        let (one, two) = (self.known[at].1, self.known[other].1);
        let request = match self.rng.u8(0..6) {
            0 => Request::Remove {
                directory: one,
                name,
                directory_only: None,
            },
            1 => Request::Link {
                object: one,
                directory: two,
                name,
            },
            2 => Request::SetAttributes(
                one,
                SetAttributes {
                    size: Some(self.size()),
                    ..SetAttributes::default()
                },
            ),
            3 => Request::Create {
                directory: one,
                name,
                new: New::Directory,
                attributes: SetAttributes::default(),
            },
            _ => Request::Rename {
                from: one,
                from_name: name,
                to: two,
                to_name,
            },
        };
        (Caller::ROOT, request)
    }
}
