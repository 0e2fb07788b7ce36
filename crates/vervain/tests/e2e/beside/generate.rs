//! Conversations from a seed: every command, right, wrong in one word, or cut and changed anywhere.

use fastrand::Rng;

use super::conversation::{Command, Conversation, Part, Session};

/// The largest item of both servers.
const ITEM_SIZE_MAX: usize = 1 << 20;
/// Around the largest item memcached counts its own headers.
const UNSURE: usize = 1024;

/// A key that is seldom stored.
const NOBODY: &[u8] = b"nobody";

/// The conversation of a seed.
pub(super) fn generate(seed: u64) -> Conversation {
    let mut random = Rng::with_seed(seed);
    let sessions = random.usize(1..=4);
    let mut generator = Generator {
        // Few keys meet each other often.
        keys: keys(&mut random),
        flushes_later: random.bool(),
        read: Vec::new(),
        random,
    };
    Conversation {
        sessions: (0..sessions).map(|_| generator.session()).collect(),
    }
}

/// Keys of all conversations.
pub(super) fn all_keys() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..8).map(|key| format!("k{key}").into_bytes()).collect();
    all.push(vec![b'l'; 250]);
    all.push(b"noreply".to_vec());
    all.push(b"0".to_vec());
    all.push(vec![0xff, 0xfe, 0x80]);
    all.push(vec![1, 0x1f, 0x7f, b'~']);
    all.push(NOBODY.to_vec());
    all
}

fn keys(random: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = all_keys();
    random.shuffle(&mut all);
    all.truncate(random.usize(1..=6));
    all
}

struct Generator {
    random: Rng,
    keys: Vec<Vec<u8>>,
    /// Flushes are for later: one for later brings back to memcached what one at once took.
    flushes_later: bool,
    /// Keys that this conversation has read: memcached shortens no number whose item an answer still holds.
    read: Vec<Vec<u8>>,
}

fn bytes(text: impl AsRef<[u8]>) -> Part {
    Part::Bytes(text.as_ref().to_vec())
}

/// A value that is read as short lines where its command was refused: long ones are refused otherwise.
fn in_lines(mut value: Vec<u8>) -> Vec<u8> {
    for byte in value.iter_mut().step_by(500).skip(1) {
        *byte = b'\n';
    }
    value
}

impl Generator {
    fn session(&mut self) -> Session {
        self.read.clear();
        let count = self.random.usize(1..=25);
        let mut commands: Vec<Command> = (0..count).map(|_| self.command()).collect();
        if self.one_in(20) {
            // Anywhere else memcached drops answers before it.
            let verb = self.pick(&[&b"get "[..], b"gets a ", b"gat 0 ", b"gats 0 a "]);
            let key = vec![b'm'; self.random.usize(251..400)];
            commands.insert(0, vec![bytes([verb, &key, b"\r\n"].concat())]);
        }
        let cuts = self.random.bool().then(|| self.random.u64(..));
        Session { commands, cuts }
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.u32(0..times) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.random.usize(0..from.len())]
    }

    fn command(&mut self) -> Command {
        let mut command = match self.random.u8(0..64) {
            0..=13 => self.retrieval(),
            14..=37 => self.storage(),
            38..=43 => self.delete(),
            44..=54 => self.arith(),
            55..=57 => self.touch(),
            58 => self.flush_all(),
            59..=61 => self.other(),
            _ => self.nonsense(),
        };
        if self.one_in(25) {
            self.change(&mut command);
        }
        command
    }

    fn key(&mut self) -> Vec<u8> {
        match self.random.u8(0..40) {
            0 => NOBODY.to_vec(),
            _ => self.keys[self.random.usize(0..self.keys.len())].clone(),
        }
    }

    /// A key that may be too long.
    fn any_key(&mut self) -> Vec<u8> {
        if self.one_in(30) {
            vec![b'm'; self.random.usize(251..400)]
        } else {
            self.key()
        }
    }

    fn end(&mut self) -> &'static [u8] {
        self.pick(&[b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b" \r\n"])
    }

    fn blank(&mut self) -> &'static [u8] {
        self.pick(&[b" ", b" ", b" ", b" ", b" ", b"  "])
    }

    fn noreply(&mut self) -> &'static [u8] {
        self.pick(&[
            b"",
            b"",
            b"",
            b"",
            b"",
            b"",
            b" noreply",
            b" noreply",
            b" 0",
            b" noreply 1",
        ])
    }

    /// Joins words with blanks and ends the line.
    fn line(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut line = Vec::new();
        for (number, word) in words.iter().enumerate() {
            if number > 0 {
                line.extend_from_slice(self.blank());
            }
            line.extend_from_slice(word);
        }
        line.extend_from_slice(self.end());
        line
    }

    /// A number where none is right, or a right one in another form.
    fn odd_number(&mut self) -> &'static [u8] {
        self.pick(&[
            b"",
            b"x",
            b"1x",
            b"x1",
            b"+",
            b"-",
            b"++1",
            b"+-1",
            b"--1",
            b"1.5",
            b"0x10",
            b"1e3",
            b"-1",
            b"-5",
            b"+7",
            b"+0",
            b"007",
            b"00000000000000000000001",
            b"184467440737095516160",
            b"99999999999999999999999999",
        ])
    }

    /// No sum of these comes to 2^63, from where on memcached looks for a minus sign in memory that
    /// lies behind the value.
    fn delta(&mut self) -> Vec<u8> {
        match self.random.u8(0..8) {
            0 => self.odd_number().to_vec(),
            1 => b"18446744073709551616".to_vec(),
            2 => b"0".to_vec(),
            3 => self.random.u64(..1 << 40).to_string().into_bytes(),
            _ => self.random.u8(..).to_string().into_bytes(),
        }
    }

    /// Dates that are far from now, either way: nothing ends while a conversation lasts.
    fn expiry(&mut self) -> &'static [u8] {
        match self.random.u8(0..12) {
            0 => self.pick(&[b"x", b"1x", b"-", b"", b"1.5", b"noreply"]),
            1 => self.pick(&[b"-1", b"-100", b"-2147483648"]),
            2 => self.pick(&[b"+1000", b"1000", b"2592000", b"01000"]),
            // Dates of the past and of the future.
            3 => self.pick(&[b"2592001", b"1000000000", b"2147483647"]),
            _ => b"0",
        }
    }

    fn flags(&mut self) -> Vec<u8> {
        match self.random.u8(0..10) {
            0 => self
                .pick(&[&b"x"[..], b"-1", b"1x", b"+3", b"007", b""])
                .to_vec(),
            1 => b"4294967295".to_vec(),
            2 => self.random.u32(..).to_string().into_bytes(),
            _ => self.random.u8(0..9).to_string().into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.u16(0..400) {
            0..=149 => self.number_value(),
            150..=199 => Vec::new(),
            200..=339 => {
                let len = self.random.usize(0..40);
                (0..len).map(|_| self.random.u8(..)).collect()
            }
            340..=389 => {
                let len = self.random.usize(0..5000);
                let letters = (0..len).map(|_| self.random.alphanumeric() as u8);
                in_lines(letters.collect())
            }
            390..=397 => in_lines(vec![b'v'; self.random.usize(10_000..200_000)]),
            398 => in_lines(vec![b'w'; ITEM_SIZE_MAX - UNSURE]),
            _ => in_lines(vec![b'z'; ITEM_SIZE_MAX + self.random.usize(1..5000)]),
        }
    }

    /// What `incr` and `decr` may meet.
    fn number_value(&mut self) -> Vec<u8> {
        match self.random.u8(0..6) {
            0 => self
                .pick(&[
                    &b" 5"[..],
                    b"  5",
                    b"\t5",
                    b"\n5",
                    b"+5",
                    b" +5",
                    b"+ 5",
                    b"-5",
                    b"-0",
                    b"5 ",
                    b"5 5",
                    b"5 x",
                    b"5x",
                    b"5\x005",
                    b"5\0",
                    b"5\tx",
                    b"5\rx",
                    b"5\nx",
                    b"\x0b5",
                    b"007",
                    b"00000000000000000000007",
                    b"000000000000000000007",
                    b"\x005",
                    b"                     7",
                    b"7                     ",
                    b"0x10",
                    b"1e2",
                    b"\xa05",
                ])
                .to_vec(),
            1 => self
                .pick(&[
                    &b"18446744073709551616"[..],
                    b"99999999999999999999",
                    b"999999999999999999999",
                    b"4611686018427387904",
                    b"04611686018427387904",
                    b"0000004611686018427387904 x",
                    b"184467440737095516151",
                ])
                .to_vec(),
            2 => self.random.u64(..1 << 62).to_string().into_bytes(),
            3 => self.odd_number().to_vec(),
            _ => self.random.u8(..).to_string().into_bytes(),
        }
    }

    fn retrieval(&mut self) -> Command {
        let verb: &[u8] = self.pick(&[b"get", b"get", b"gets", b"gets", b"gets", b"gat", b"gats"]);
        let count = match self.random.u8(0..20) {
            0 => 0,
            1 => self.random.usize(20..40),
            2..=6 => self.random.usize(2..6),
            _ => 1,
        };
        let keys: Vec<Vec<u8>> = (0..count).map(|_| self.key()).collect();
        let mut words = vec![verb];
        if verb.starts_with(b"gat") {
            words.push(self.expiry());
        }
        words.extend(keys.iter().map(|key| &key[..]));
        self.read.extend(keys.iter().cloned());
        // Other lines than those of `get` end by 2048 bytes.
        while words.iter().map(|word| word.len() + 2).sum::<usize>() > 2000 {
            words.pop();
        }
        vec![bytes(self.line(&words))]
    }

    fn storage(&mut self) -> Command {
        let verb: &[u8] = self.pick(&[
            b"set", b"set", b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend",
            b"cas", b"cas",
        ]);
        let key = self.any_key();
        let mut value = self.value();
        if matches!(verb, b"append" | b"prepend") {
            // What grows too large is refused in other words.
            value.truncate(300);
        }
        let (flags, expiry) = (self.flags(), self.expiry());
        let len = match self.random.u16(0..60) {
            0 => self.odd_number().to_vec(),
            1 => (value.len() + self.random.usize(1..20))
                .to_string()
                .into_bytes(),
            2 => value
                .len()
                .saturating_sub(self.random.usize(1..5))
                .to_string()
                .into_bytes(),
            3 => b"2147483647".to_vec(),
            4 => format!("+{}", value.len()).into_bytes(),
            _ => value.len().to_string().into_bytes(),
        };
        let mut words = [flags, expiry.to_vec(), len];
        if verb == b"cas" {
            // Its token must not come where the size is wanted: there it would wrap.
            for word in words.iter_mut().filter(|word| word.is_empty()) {
                word.push(b'x');
            }
        }
        let [flags, expiry, len] = words;
        let mut command = vec![bytes(
            [verb, b" ", &key, b" ", &flags, b" ", &expiry, b" ", &len].concat(),
        )];
        if verb == b"cas" {
            command.push(bytes(self.blank()));
            command.push(match self.random.u8(0..8) {
                0 => bytes(self.random.u64(1 << 40..).to_string()),
                1 => bytes(self.pick(&[&b"x"[..], b"", b"-1", b"1x", b"18446744073709551616"])),
                2 | 3 => Part::FirstToken(key),
                _ => Part::LastToken(key),
            });
        }
        command.push(bytes(self.noreply()));
        command.push(bytes(self.end()));
        command.push(Part::Bytes(value));
        let end: &[u8] = if self.one_in(40) {
            self.pick(&[
                b"
", b"xx", b"", b"
x",
            ])
        } else {
            b"\r\n"
        };
        command.push(bytes(end));
        command
    }

    fn delete(&mut self) -> Command {
        let key = self.any_key();
        let more = self.pick(&[
            &b""[..],
            b"",
            b"",
            b" 0",
            b" 1",
            b" noreply",
            b" 0 noreply",
            b" noreply 0",
            b" 0 0 0",
        ]);
        let line = self.line(&[b"delete", &[&key, more].concat()]);
        vec![bytes(line)]
    }

    fn arith(&mut self) -> Command {
        let verb = self.pick(&[&b"incr"[..], b"decr"]);
        let (key, delta, noreply) = (self.any_key(), self.delta(), self.noreply());
        if self.read.contains(&key) {
            return self.delete();
        }
        let line = self.line(&[verb, &key, &[&delta[..], noreply].concat()]);
        vec![bytes(line)]
    }

    fn touch(&mut self) -> Command {
        let (key, expiry, noreply) = (self.any_key(), self.expiry(), self.noreply());
        let line = self.line(&[b"touch", &key, &[expiry, noreply].concat()]);
        vec![bytes(line)]
    }

    fn flush_all(&mut self) -> Command {
        let delay = if self.flushes_later {
            self.pick(&[
                &b" 1000"[..],
                b" 2592000",
                b" 2147483647",
                b" 1000 noreply",
                b" x",
                b" 1x",
                b" x noreply",
            ])
        } else {
            self.pick(&[
                &b""[..],
                b"",
                b" 0",
                b" -1",
                b" 0 1",
                b" noreply",
                b" 0 noreply",
                b" 1 2 3",
            ])
        };
        let line = self.line(&[&[b"flush_all", delay].concat()]);
        vec![bytes(line)]
    }

    fn other(&mut self) -> Command {
        let line = self.pick(&[
            &b"version"[..],
            b"version x",
            b"version noreply",
            b"verbosity",
            b"verbosity 0",
            b"verbosity 1 noreply",
            b"verbosity x",
            b"verbosity noreply",
            b"verbosity 0 0 0",
            b"stats",
            b"stats reset",
            b"stats settings",
            b"stats nothing",
            b"quit",
            b"quit now",
        ]);
        let line = self.line(&[line]);
        vec![bytes(line)]
    }

    fn nonsense(&mut self) -> Command {
        let count = self.random.usize(0..7);
        let words: Vec<&[u8]> = (0..count)
            .map(|_| {
                self.pick(&[
                    &b"get"[..],
                    b"set",
                    b"cas",
                    b"incr",
                    b"touch",
                    b"gat",
                    b"GET",
                    b"Set",
                    b"sets",
                    b"k1",
                    b"0",
                    b"1",
                    b"-1",
                    b"noreply",
                    b"\x81",
                    b"5",
                    b"",
                    b"version",
                    b"\x7f",
                ])
            })
            .collect();
        let line = self.line(&words);
        vec![bytes(line)]
    }

    /// Changes bytes of a command's line, but no numbers, which have changes of their own: a shorter
    /// one may be a date that comes too soon, a longer one wraps. Nor the end: a carriage return that
    /// is left of one is a blank to memcached.
    fn change(&mut self, command: &mut Command) {
        let Some(Part::Bytes(line)) = command.first_mut() else {
            return;
        };
        if line.len() > 200 {
            return;
        }
        for _ in 0..self.random.usize(1..=3) {
            let byte = *self
                .random
                .choice(b" \n  +xX-kgset,\x01\x7f")
                .expect("a byte");
            let at = self.random.usize(0..=line.len().saturating_sub(2));
            let near = &line[at.saturating_sub(1)..line.len().min(at + 2)];
            if near.iter().any(u8::is_ascii_digit) {
                continue;
            }
            match self.random.u8(0..3) {
                0 => line.insert(at, byte),
                1 if at < line.len() => line[at] = byte,
                _ if at < line.len() => drop(line.remove(at)),
                _ => {}
            }
        }
    }
}
