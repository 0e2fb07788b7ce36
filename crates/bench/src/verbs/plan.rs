//! From experiments and what the user wants of them to cases.

use verbs::{DeviceAttr, Transport};

use super::case::{Case, POSTLIST_MAX, QPS_MAX, Role, Rung, Target, Verb, Way, Work};
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
    fn sizes(&self, brief: &[usize], all: &[usize]) -> Vec<usize> {
        match (self.sizes.is_empty(), self.brief) {
            (false, _) => self.sizes.clone(),
            (true, true) => brief.to_vec(),
            (true, false) => all.to_vec(),
        }
    }

    fn inlines(&self, size: usize, device: &DeviceAttr) -> bool {
        match self.inline {
            Inline::Auto => size <= INLINE_LEN.min(device.inline_max as usize),
            Inline::Always => true,
            Inline::Never => false,
        }
    }

    fn transports(&self, usual: &[Transport]) -> Vec<Transport> {
        match self.transports.is_empty() {
            true => usual.to_vec(),
            false => self.transports.clone(),
        }
    }
}

fn or(given: &[u32], usual: &[u32]) -> Vec<u32> {
    if given.is_empty() { usual } else { given }.to_vec()
}

/// Makes cases.
struct Planner<'a> {
    wishes: &'a Wishes,
    device: &'a DeviceAttr,
    mtu: usize,
    cases: Vec<Case>,
    /// Why a case was left out.
    refused: Option<String>,
}

impl Planner<'_> {
    /// A case with what is usual where nothing is wished.
    fn case(&self, experiment: Experiment, work: Work, size: usize) -> Case {
        let wishes = self.wishes;
        let first = |given: &[u32], usual| given.first().copied().unwrap_or(usual);
        let window = first(&wishes.windows, WINDOW);
        let postlist = first(&wishes.postlists, POSTLIST).min(window);
        let carried = match work {
            Work::OneWay { way, .. } => matches!(way.verb, Verb::Write | Verb::Send),
            _ => true,
        };
        Case {
            experiment,
            work,
            latency: false,
            size,
            window,
            postlist,
            signal_every: first(&wishes.signal_every, window / 2),
            inline: carried && wishes.inlines(size, self.device),
            qps: first(&wishes.qps, 1),
            target: wishes.target.unwrap_or(Target::Polling),
            role: wishes.role.unwrap_or(Role::Outbound),
            rung: None,
        }
    }

    fn add(&mut self, case: Case) {
        let case = case.settle();
        match case.refusal(self.device, self.mtu) {
            Some(why) => self.refused = Some(why),
            None if self.cases.contains(&case) => {}
            None => self.cases.push(case),
        }
    }

    /// A case for each wished window, postlist, signaling and number of queue pairs.
    fn add_all(&mut self, case: &Case) {
        let wishes = self.wishes;
        for window in or(&wishes.windows, &[case.window]) {
            for postlist in or(&wishes.postlists, &[case.postlist.min(window)]) {
                for signal_every in or(&wishes.signal_every, &[(window / 2).max(1)]) {
                    for qps in or(&wishes.qps, &[case.qps]) {
                        self.add(Case {
                            window,
                            postlist,
                            signal_every,
                            qps,
                            ..case.clone()
                        });
                    }
                }
            }
        }
    }

    fn timed(case: Case) -> Case {
        Case {
            latency: true,
            window: 1,
            postlist: 1,
            signal_every: 1,
            qps: 1,
            ..case
        }
    }

    fn one_way(&mut self, experiment: Experiment, verb: Verb, transports: &[Transport]) {
        let all: Vec<usize> = (2..=13).map(|shift| 1 << shift).collect();
        let sizes = if verb.is_atomic() {
            vec![8]
        } else {
            self.wishes.sizes(&[64, 1024], &all)
        };
        for transport in self.wishes.transports(transports) {
            for &size in &sizes {
                let way = Way::new(verb, transport);
                let work = Work::OneWay {
                    way,
                    one_word: false,
                };
                let case = self.case(experiment, work, size);
                if self.wishes.latency {
                    let target = Target::Idle;
                    self.add(Self::timed(Case { target, ..case }));
                    continue;
                }
                let targets = match (verb, self.wishes.target) {
                    (Verb::Send, _) => vec![Target::Polling],
                    (Verb::Write, Some(target)) => vec![target],
                    (Verb::Write, None) => vec![Target::Polling, Target::Idle],
                    _ => vec![Target::Idle],
                };
                for target in targets {
                    self.add_all(&Case {
                        target,
                        ..case.clone()
                    });
                }
                if verb.is_atomic() {
                    let work = Work::OneWay {
                        way,
                        one_word: true,
                    };
                    let target = Target::Idle;
                    self.add_all(&Case {
                        work,
                        target,
                        ..case
                    });
                }
            }
        }
    }

    fn latency(&mut self) {
        let sizes = self.wishes.sizes(&[32], &[4, 16, 32, 64, 128, 256, 1024]);
        for &size in &sizes {
            for (verb, inline) in [
                (Verb::Write, false),
                (Verb::Write, true),
                (Verb::Read, false),
                (Verb::Send, true),
            ] {
                let work = Work::OneWay {
                    way: Way::new(verb, Transport::Rc),
                    one_word: false,
                };
                let case = self.case(Experiment::Latency, work, size);
                let inline = inline && case.inline;
                let target = if verb == Verb::Send {
                    Target::Polling
                } else {
                    Target::Idle
                };
                self.add(Self::timed(Case {
                    inline,
                    target,
                    ..case
                }));
            }
            for kind in KINDS {
                self.echo(Experiment::Latency, kind, Rung::Inlined, size, &[1], true);
            }
        }
        for verb in [Verb::Cas, Verb::Faa] {
            let work = Work::OneWay {
                way: Way::new(verb, Transport::Rc),
                one_word: true,
            };
            let case = self.case(Experiment::Latency, work, 8);
            let target = Target::Idle;
            self.add(Self::timed(Case { target, ..case }));
        }
    }

    fn echo(
        &mut self,
        experiment: Experiment,
        [request, answer]: [Verb; 2],
        rung: Rung,
        size: usize,
        windows: &[u32],
        latency: bool,
    ) {
        let way = |verb| match (rung, verb) {
            (Rung::Basic, _) => Way::new(verb, Transport::Rc),
            (_, Verb::Write) => Way::new(verb, Transport::Uc),
            _ => Way::new(verb, Transport::Ud),
        };
        let work = Work::Echo {
            request: way(request),
            answer: way(answer),
            numbered: experiment == Experiment::Sequencer,
        };
        for &window in windows {
            let case = self.case(experiment, work, size);
            let postlists = or(&self.wishes.postlists, &[(window / 2).clamp(1, 8)]);
            for postlist in postlists {
                let signal_every = match rung {
                    Rung::Basic | Rung::Unreliable => 1,
                    _ => ECHO_SIGNAL_EVERY,
                };
                self.add(Case {
                    latency,
                    window,
                    postlist: if latency { 1 } else { postlist.min(window) },
                    signal_every,
                    inline: rung == Rung::Inlined && case.inline,
                    qps: 1,
                    rung: Some(rung),
                    ..case
                });
            }
        }
    }

    fn echoes(&mut self, experiment: Experiment, kinds: &[[Verb; 2]]) {
        let brief = self.wishes.brief;
        let usual: &[u32] = if brief {
            &[8, 32]
        } else {
            &[1, 4, 8, 16, 32, 64]
        };
        let windows = or(&self.wishes.windows, usual);
        for size in self.wishes.sizes(&[ECHO_SIZE], &[ECHO_SIZE]) {
            for &kind in kinds {
                for rung in Rung::ALL {
                    self.echo(experiment, kind, rung, size, &[1], true);
                    if !self.wishes.latency {
                        self.echo(experiment, kind, rung, size, &windows, false);
                    }
                }
            }
        }
    }

    fn sequencer(&mut self) {
        let experiment = Experiment::Sequencer;
        let usual: &[u32] = if self.wishes.brief {
            &[32]
        } else {
            &[1, 8, 32]
        };
        let windows = or(&self.wishes.windows, usual);
        for kind in [[Verb::Write, Verb::Send], [Verb::Send, Verb::Send]] {
            let rung = Rung::Inlined;
            self.echo(experiment, kind, rung, SEQUENCE_SIZE, &windows, false);
        }
        for &window in &windows {
            let work = Work::OneWay {
                way: Way::new(Verb::Faa, Transport::Rc),
                one_word: true,
            };
            let case = self.case(experiment, work, 8);
            self.add(Case {
                window,
                postlist: (window / 2).clamp(1, 8),
                signal_every: (window / 2).max(1),
                qps: 1,
                target: Target::Idle,
                ..case
            });
        }
    }

    /// Cases that differ in one thing only.
    fn varied(
        &mut self,
        experiment: Experiment,
        way: Way,
        values: &[u32],
        set: impl Fn(Case, u32) -> Case,
    ) {
        for size in self.wishes.sizes(&[64], &[64]) {
            let work = Work::OneWay {
                way,
                one_word: false,
            };
            for &value in values {
                let case = self.case(experiment, work, size);
                self.add(set(case, value));
            }
        }
    }

    fn postlist(&mut self) {
        let usual: &[u32] = if self.wishes.brief {
            &[1, 4, 16]
        } else {
            &[1, 2, 4, 8, 16, 32, 64]
        };
        let values = or(&self.wishes.postlists, usual);
        for transport in self.wishes.transports(&[Transport::Uc]) {
            let way = Way::new(Verb::Write, transport);
            for latency in [true, false] {
                self.varied(Experiment::Postlist, way, &values, |case, value| Case {
                    latency,
                    postlist: value,
                    window: if latency {
                        value
                    } else {
                        case.window.max(2 * value)
                    },
                    signal_every: if latency { value } else { case.signal_every },
                    target: match latency {
                        true => Target::Idle,
                        false => case.target,
                    },
                    qps: 1,
                    ..case
                });
            }
        }
    }

    fn qps(&mut self) {
        let usual: &[u32] = if self.wishes.brief {
            &[1, 16, 256]
        } else {
            &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        };
        let values = or(&self.wishes.qps, usual);
        let roles = match self.wishes.role {
            Some(role) => vec![role],
            None => vec![Role::Outbound, Role::Inbound],
        };
        let ways = [
            Way::new(Verb::Write, Transport::Uc),
            Way::new(Verb::Read, Transport::Rc),
            Way::new(Verb::Send, Transport::Ud),
        ];
        let wished = self
            .wishes
            .transports(&[Transport::Rc, Transport::Uc, Transport::Ud]);
        for way in ways {
            if !wished.contains(&way.transport) {
                continue;
            }
            for &role in &roles {
                self.varied(Experiment::Qps, way, &values, |case, value| Case {
                    qps: value,
                    role,
                    // Few requests to each of many, as a server answers its clients.
                    window: case.window.min(16),
                    postlist: case.postlist.min(4),
                    signal_every: case.signal_every.min(8),
                    target: if way.verb == Verb::Read {
                        Target::Idle
                    } else {
                        case.target
                    },
                    ..case
                });
            }
        }
    }

    fn signalling(&mut self) {
        let usual: &[u32] = if self.wishes.brief {
            &[16, 128]
        } else {
            &[1, 4, 16, 64, 128, 512]
        };
        let windows = or(&self.wishes.windows, usual);
        let every = or(&self.wishes.signal_every, &[1, 8, 64]);
        for transport in self.wishes.transports(&[Transport::Uc]) {
            let way = Way::new(Verb::Write, transport);
            for &signal_every in &every {
                self.varied(Experiment::Signalling, way, &windows, |case, window| Case {
                    window,
                    signal_every,
                    postlist: 1,
                    target: Target::Idle,
                    qps: 1,
                    ..case
                });
            }
        }
    }

    fn ordering(&mut self) {
        let sizes = self.wishes.sizes(&[64, 1024], &[64, 256, 1024, 4096]);
        for transport in self.wishes.transports(&[Transport::Rc, Transport::Uc]) {
            for &size in &sizes {
                let work = Work::Order {
                    way: Way::new(Verb::Write, transport),
                };
                let case = self.case(Experiment::Ordering, work, size);
                self.add(Case {
                    window: 16,
                    postlist: 1,
                    signal_every: 1,
                    qps: 2,
                    ..case
                });
            }
        }
    }

    fn plan(&mut self, experiment: Experiment) {
        use Transport::{Rc, Uc, Ud};
        match experiment {
            Experiment::Write => self.one_way(experiment, Verb::Write, &[Uc, Rc]),
            Experiment::Read => self.one_way(experiment, Verb::Read, &[Rc]),
            Experiment::Send => self.one_way(experiment, Verb::Send, &[Ud, Uc, Rc]),
            Experiment::Cas => self.one_way(experiment, Verb::Cas, &[Rc]),
            Experiment::Faa => self.one_way(experiment, Verb::Faa, &[Rc]),
            Experiment::Latency => self.latency(),
            Experiment::Echo => self.echoes(experiment, &KINDS),
            Experiment::Hybrid => self.echoes(experiment, &[KINDS[1]]),
            Experiment::Sequencer => self.sequencer(),
            Experiment::Postlist => self.postlist(),
            Experiment::Qps => self.qps(),
            Experiment::Signalling => self.signalling(),
            Experiment::Ordering => self.ordering(),
        }
    }
}

/// The echoes of Fig 5.
const KINDS: [[Verb; 2]; 3] = [
    [Verb::Write, Verb::Write],
    [Verb::Write, Verb::Send],
    [Verb::Send, Verb::Send],
];

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
    let mut planner = Planner {
        wishes,
        device,
        mtu,
        cases: Vec::new(),
        refused: None,
    };
    for &experiment in experiments {
        let before = planner.cases.len();
        planner.plan(experiment);
        if planner.cases.len() == before {
            let why = planner.refused.take();
            let why = why.unwrap_or_else(|| "nothing of it fits these settings".into());
            return Err(VerbsRunError::Setting(format!("{experiment}: {why}")));
        }
    }
    Ok(planner.cases)
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
            let cases = plan(&Experiment::ALL, &wishes, &device(), 4096).expect("a plan");
            for one in Experiment::ALL {
                assert!(cases.iter().any(|case| case.experiment == one), "{one}");
            }
            for case in &cases {
                assert_eq!(case.refusal(&device(), 4096), None);
                assert!(case.slots().is_power_of_two());
                let waits = case.signal_every + case.postlist > case.depth() + 1;
                assert!(!waits || case.latency, "{case:?}");
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
