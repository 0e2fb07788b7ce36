//! From experiments and what the user wants of them to cases.

use verbs::{DeviceAttr, Transport};

use super::case::{Case, POSTLIST_MAX, QPS_MAX, Role, Rung, Target, Verb, Way};
use super::error::VerbsRunError;
use super::experiment::Experiment;
use crate::units;

/// Messages up to here are inlined unless said otherwise, as HERD does on Apt (section 5.1).
const INLINE_LEN: usize = 256;
/// Work requests under way, and posted together, where an experiment does not vary them.
const WINDOW: u32 = 128;
const POSTLIST: u32 = 16;
/// Bytes of an echo's message (HERD, Fig 5).
const ECHO_SIZE: usize = 32;
/// Bytes of a sequencer's request and answer.
const SEQUENCE_SIZE: usize = 16;
/// Completions asked for on the upper rungs: one in so many.
const ECHO_SIGNAL_EVERY: u32 = 64;

/// Whether messages are carried within the work request.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Inline {
    /// Those of up to 256 bytes.
    #[default]
    Auto,
    /// All of them.
    Always,
    /// None.
    Never,
}

/// What the user wants of the experiments. What is not given is the experiment's own choice; an
/// empty list is not given.
#[derive(clap::Args, Clone, PartialEq, Debug, Default, serde::Serialize)]
#[command(next_help_heading = "Instead of the experiment's own choice")]
pub struct Wishes {
    /// Bytes of a message, several by commas.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = units::size)]
    pub sizes: Vec<usize>,
    /// Requests under way, on each queue pair.
    #[arg(long = "window", value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub windows: Vec<u32>,
    /// Work requests in one post call.
    #[arg(long = "postlist", value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(POSTLIST_MAX)))]
    pub postlists: Vec<u32>,
    /// One completion in so many work requests.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub signal_every: Vec<u32>,
    /// Queue pairs.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QPS_MAX)))]
    pub qps: Vec<u32>,
    /// Transports: rc, uc, ud.
    #[arg(long = "transport", value_name = "NAME,...", value_delimiter = ',',
          value_parser = transport_of)]
    #[serde(serialize_with = "transport_names")]
    pub transports: Vec<Transport>,
    /// Which messages are carried within the work request.
    #[arg(long, value_enum, default_value_t = Inline::Auto)]
    pub inline: Inline,
    /// Who posts.
    #[arg(long, value_enum, value_name = "ROLE")]
    pub role: Option<Role>,
    /// What the target's CPU does with WRITEs.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub target: Option<Target>,
    /// Measure the time of one request instead of throughput.
    #[arg(long, help_heading = None)]
    pub latency: bool,
    /// Fewer sizes and windows, as when nothing is named.
    #[arg(skip)]
    pub brief: bool,
}

fn transport_of(name: &str) -> Result<Transport, String> {
    match name {
        "rc" => Ok(Transport::Rc),
        "uc" => Ok(Transport::Uc),
        "ud" => Ok(Transport::Ud),
        _ => Err(format!("`{name}` is no transport; write rc, uc or ud")),
    }
}

fn transport_names<S: serde::Serializer>(
    transports: &[Transport],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(transports.iter().copied().map(super::case::transport_name))
}

impl Wishes {
    /// What is usual of a run that is brief, or not.
    fn usual<'a, T>(&self, brief: &'a [T], all: &'a [T]) -> &'a [T] {
        if self.brief { brief } else { all }
    }

    fn sizes(&self, brief: &[usize], all: &[usize]) -> Vec<usize> {
        or(&self.sizes, self.usual(brief, all))
    }

    /// An operation over the wished transports, or over the usual ones.
    fn ways(&self, verb: Verb, usual: &[Transport]) -> Vec<Way> {
        let transports = or(&self.transports, usual).into_iter();
        transports
            .map(|transport| Way::new(verb, transport))
            .collect()
    }
}

fn or<T: Copy>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual } else { given }.to_vec()
}

/// Each case with each of the values, or as it is where there are none.
fn vary<T: Copy>(cases: Vec<Case>, values: &[T], set: impl Fn(Case, T) -> Case) -> Vec<Case> {
    if values.is_empty() {
        return cases;
    }
    let all = cases.iter();
    let all = all.flat_map(|case| values.iter().map(|value| set(case.clone(), *value)));
    all.collect()
}

/// One at a time, each of them timed.
fn timed(case: Case) -> Case {
    Case {
        timed: true,
        window: 1,
        postlist: 1,
        signal_every: 1,
        qps: 1,
        ..case
    }
}

/// The echoes of Fig 5.
const KINDS: [[Verb; 2]; 3] = [
    [Verb::Write, Verb::Write],
    [Verb::Write, Verb::Send],
    [Verb::Send, Verb::Send],
];

/// Makes the cases of one experiment.
struct Planner<'a> {
    experiment: Experiment,
    wishes: &'a Wishes,
    inline_max: usize,
}

impl Planner<'_> {
    /// Every way with every size, and what is usual where nothing is wished.
    fn cases(&self, ways: &[Way], sizes: &[usize]) -> Vec<Case> {
        let wishes = self.wishes;
        let first = |given: &[u32], usual| given.first().copied().unwrap_or(usual);
        let window = first(&wishes.windows, WINDOW);
        let case = |request: Way, size: usize| {
            let inline = match wishes.inline {
                Inline::Auto => size <= INLINE_LEN.min(self.inline_max),
                Inline::Always => true,
                Inline::Never => false,
            };
            Case {
                experiment: self.experiment,
                request,
                answer: None,
                one_word: false,
                sequence: false,
                timed: false,
                size,
                window,
                postlist: first(&wishes.postlists, POSTLIST).min(window),
                signal_every: first(&wishes.signal_every, window / 2),
                inline: inline && matches!(request.verb, Verb::Write | Verb::Send),
                qps: first(&wishes.qps, 1),
                target: wishes.target.unwrap_or(Target::Polling),
                role: wishes.role.unwrap_or(Role::Outbound),
                rung: None,
            }
        };
        let by_size = |way: &Way| {
            sizes
                .iter()
                .map(|size| case(*way, *size))
                .collect::<Vec<_>>()
        };
        ways.iter().flat_map(by_size).collect()
    }

    fn one_way(&self, verb: Verb, transports: &[Transport]) -> Vec<Case> {
        let wishes = self.wishes;
        let all: Vec<usize> = (2..=13).map(|shift| 1 << shift).collect();
        let sizes = match verb.is_atomic() {
            true => vec![8],
            false => wishes.sizes(&[64, 1024], &all),
        };
        let cases = self.cases(&wishes.ways(verb, transports), &sizes);
        let idle = |case| Case {
            target: Target::Idle,
            ..case
        };
        if wishes.latency {
            return cases.into_iter().map(|case| timed(idle(case))).collect();
        }
        let targets = match (verb, wishes.target) {
            (Verb::Send, _) => vec![Target::Polling],
            (Verb::Write, Some(target)) => vec![target],
            (Verb::Write, None) => vec![Target::Polling, Target::Idle],
            _ => vec![Target::Idle],
        };
        let words: &[bool] = if verb.is_atomic() {
            &[false, true]
        } else {
            &[]
        };
        let cases = vary(cases, &targets, |case, target| Case { target, ..case });
        let cases = vary(cases, words, |case, one_word| Case { one_word, ..case });
        let cases = vary(cases, &wishes.windows, |case, window| Case {
            window,
            postlist: case.postlist.min(window),
            signal_every: (window / 2).max(1),
            ..case
        });
        let cases = vary(cases, &wishes.postlists, |case, postlist| Case {
            postlist,
            ..case
        });
        let cases = vary(cases, &wishes.signal_every, |case, signal_every| Case {
            signal_every,
            ..case
        });
        vary(cases, &wishes.qps, |case, qps| Case { qps, ..case })
    }

    fn latency(&self) -> Vec<Case> {
        let sizes = self.wishes.sizes(&[32], &[4, 16, 32, 64, 128, 256, 1024]);
        let mut cases = Vec::new();
        for &size in &sizes {
            for (verb, inline) in [
                (Verb::Write, false),
                (Verb::Write, true),
                (Verb::Read, false),
                (Verb::Send, true),
            ] {
                let target = match verb {
                    Verb::Send => Target::Polling,
                    _ => Target::Idle,
                };
                let case = self.cases(&[Way::new(verb, Transport::Rc)], &[size]);
                cases.extend(case.into_iter().map(|case| {
                    let inline = inline && case.inline;
                    timed(Case {
                        inline,
                        target,
                        ..case
                    })
                }));
            }
            for kind in KINDS {
                cases.extend(self.echo(kind, Rung::Inlined, size, &[1], true));
            }
        }
        let atomics = [Verb::Cas, Verb::Faa].map(|verb| Way::new(verb, Transport::Rc));
        let atomics = self.cases(&atomics, &[8]).into_iter();
        cases.extend(atomics.map(|case| {
            timed(Case {
                target: Target::Idle,
                one_word: true,
                ..case
            })
        }));
        cases
    }

    fn echo(
        &self,
        [request, answer]: [Verb; 2],
        rung: Rung,
        size: usize,
        windows: &[u32],
        timed: bool,
    ) -> Vec<Case> {
        let way = |verb| match (rung, verb) {
            (Rung::Basic, _) => Way::new(verb, Transport::Rc),
            (_, Verb::Write) => Way::new(verb, Transport::Uc),
            _ => Way::new(verb, Transport::Ud),
        };
        let cases = self.cases(&[way(request)], &[size]);
        let cases = vary(cases, windows, |case, window| Case {
            answer: Some(way(answer)),
            sequence: self.experiment == Experiment::Sequencer,
            timed,
            window,
            postlist: (window / 2).clamp(1, 8),
            signal_every: match rung {
                Rung::Basic | Rung::Unreliable => 1,
                _ => ECHO_SIGNAL_EVERY,
            },
            inline: rung == Rung::Inlined && case.inline,
            qps: 1,
            rung: Some(rung),
            ..case
        });
        let postlists: &[u32] = if timed { &[1] } else { &self.wishes.postlists };
        vary(cases, postlists, |case, postlist| Case {
            postlist: postlist.min(case.window),
            ..case
        })
    }

    fn echoes(&self) -> Vec<Case> {
        let usual = self.wishes.usual(&[8, 32], &[1, 4, 8, 16, 32, 64]);
        let windows = or(&self.wishes.windows, usual);
        let mut cases = Vec::new();
        for size in self.wishes.sizes(&[ECHO_SIZE], &[ECHO_SIZE]) {
            for kind in KINDS {
                for rung in Rung::ALL {
                    cases.extend(self.echo(kind, rung, size, &[1], true));
                    if !self.wishes.latency {
                        cases.extend(self.echo(kind, rung, size, &windows, false));
                    }
                }
            }
        }
        cases
    }

    fn sequencer(&self) -> Vec<Case> {
        let windows = or(&self.wishes.windows, self.wishes.usual(&[32], &[1, 8, 32]));
        let kinds = [[Verb::Write, Verb::Send], [Verb::Send, Verb::Send]].into_iter();
        let echo = |kind| self.echo(kind, Rung::Inlined, SEQUENCE_SIZE, &windows, false);
        let mut cases: Vec<Case> = kinds.flat_map(echo).collect();
        let adds = self.cases(&[Way::new(Verb::Faa, Transport::Rc)], &[8]);
        cases.extend(vary(adds, &windows, |case, window| Case {
            one_word: true,
            window,
            postlist: (window / 2).clamp(1, 8),
            signal_every: (window / 2).max(1),
            qps: 1,
            target: Target::Idle,
            ..case
        }));
        cases
    }

    fn postlist(&self) -> Vec<Case> {
        let usual = self.wishes.usual(&[1, 4, 16], &[1, 2, 4, 8, 16, 32, 64]);
        let values = or(&self.wishes.postlists, usual);
        let ways = self.wishes.ways(Verb::Write, &[Transport::Uc]);
        let cases = self.cases(&ways, &self.wishes.sizes(&[64], &[64]));
        let mut all = vary(cases.clone(), &values, |case, postlist| Case {
            timed: true,
            postlist,
            window: postlist,
            signal_every: postlist,
            target: Target::Idle,
            qps: 1,
            ..case
        });
        all.extend(vary(cases, &values, |case, postlist| Case {
            postlist,
            window: case.window.max(2 * postlist),
            qps: 1,
            ..case
        }));
        all
    }

    fn qps(&self) -> Vec<Case> {
        let wishes = self.wishes;
        let all = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
        let values = or(&wishes.qps, wishes.usual(&[1, 16, 256], &all));
        let mut ways = vec![
            Way::new(Verb::Write, Transport::Uc),
            Way::new(Verb::Read, Transport::Rc),
            Way::new(Verb::Send, Transport::Ud),
        ];
        ways.retain(|way| {
            wishes.transports.is_empty() || wishes.transports.contains(&way.transport)
        });
        let roles = or(wishes.role.as_slice(), &[Role::Outbound, Role::Inbound]);
        let cases = self.cases(&ways, &wishes.sizes(&[64], &[64]));
        let cases = vary(cases, &roles, |case, role| Case { role, ..case });
        vary(cases, &values, |case, qps| Case {
            qps,
            // Few requests to each of many, as a server answers its clients.
            window: case.window.min(16),
            postlist: case.postlist.min(4),
            signal_every: case.signal_every.min(8),
            target: match case.request.verb {
                Verb::Read => Target::Idle,
                _ => case.target,
            },
            ..case
        })
    }

    fn plan(&self) -> Vec<Case> {
        use Transport::{Rc, Uc, Ud};
        match self.experiment {
            Experiment::Write => self.one_way(Verb::Write, &[Uc, Rc]),
            Experiment::Read => self.one_way(Verb::Read, &[Rc]),
            Experiment::Send => self.one_way(Verb::Send, &[Ud, Uc, Rc]),
            Experiment::Cas => self.one_way(Verb::Cas, &[Rc]),
            Experiment::Faa => self.one_way(Verb::Faa, &[Rc]),
            Experiment::Latency => self.latency(),
            Experiment::Echo => self.echoes(),
            Experiment::Sequencer => self.sequencer(),
            Experiment::Postlist => self.postlist(),
            Experiment::Qps => self.qps(),
        }
    }
}

/// The cases of some experiments. What the device or the transport cannot do is left out; when
/// nothing of an experiment is left, that is an error.
pub(super) fn plan(
    experiments: &[Experiment],
    wishes: &Wishes,
    device: &DeviceAttr,
    mtu: usize,
) -> Result<Vec<Case>, VerbsRunError> {
    let zero = [
        &wishes.windows,
        &wishes.postlists,
        &wishes.signal_every,
        &wishes.qps,
    ];
    if zero.iter().any(|list| list.contains(&0)) {
        let text = "windows, postlists, signaling and queue pairs start at 1";
        return Err(VerbsRunError::Setting(text.into()));
    }
    let mut planned: Vec<Case> = Vec::new();
    for &experiment in experiments {
        let planner = Planner {
            experiment,
            wishes,
            inline_max: device.inline_max as usize,
        };
        let before = planned.len();
        let mut why = "nothing of it fits these settings".to_string();
        for case in planner.plan().into_iter().map(Case::settle) {
            match case.refusal(device, mtu) {
                Some(refusal) => why = refusal,
                None if planned.contains(&case) => {}
                None => planned.push(case),
            }
        }
        if planned.len() == before {
            return Err(VerbsRunError::Setting(format!("{experiment}: {why}")));
        }
    }
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> DeviceAttr {
        let mut device = DeviceAttr::named("test");
        device.qp_max = 1000;
        device.qp_wr_max = 4096;
        device.inline_max = 1024;
        device.message_len_max = 1 << 30;
        device
    }

    #[test]
    fn every_experiment_has_cases_that_the_device_takes() {
        for brief in [true, false] {
            let wishes = Wishes {
                brief,
                ..Wishes::default()
            };
            let cases = plan(&Experiment::all(), &wishes, &device(), 4096).expect("a plan");
            for one in Experiment::all() {
                assert!(cases.iter().any(|case| case.experiment == one), "{one}");
            }
            for case in &cases {
                assert_eq!(case.refusal(&device(), 4096), None);
                assert!(case.slots().is_power_of_two());
                let waits = case.signal_every + case.postlist > case.depth() + 1;
                assert!(!waits || case.timed, "{case:?}");
            }
        }
    }

    #[test]
    fn what_is_wished_is_planned_and_what_cannot_be_is_refused() {
        let wishes = Wishes {
            sizes: vec![4, 8192],
            windows: vec![2, 16],
            transports: vec![Transport::Ud],
            ..Wishes::default()
        };
        let cases = plan(&[Experiment::Send], &wishes, &device(), 4096).expect("a plan");
        // A datagram has no 8192 bytes.
        assert!(cases.iter().all(|case| case.size == 4));
        assert_eq!(
            cases.iter().map(|case| case.window).collect::<Vec<_>>(),
            [2, 16]
        );
        let refused = plan(&[Experiment::Read], &wishes, &device(), 4096).expect_err("no READ");
        assert_eq!(refused.to_string(), "read: UD does not carry READ");
        let wishes = Wishes {
            sizes: vec![6],
            ..Wishes::default()
        };
        let refused = plan(&[Experiment::Write], &wishes, &device(), 4096).expect_err("6 bytes");
        assert!(refused.to_string().contains("multiple of 4"), "{refused}");
        let wishes = Wishes {
            windows: vec![0],
            ..Wishes::default()
        };
        assert!(plan(&[Experiment::Echo], &wishes, &device(), 4096).is_err());
    }
}
