//! Requests at the same time: whatever tasks are answered has to be what some order of their requests
//! explains, each task's own in theirs.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use fastrand::Rng;
use files::{Answer, Caller, CreateHow, Error, Handle, New, Request};

use super::Fixture;
use super::fixture::{create, create_file, link, remove, rename};
use super::program::{list, model};

/// Tasks of a history.
pub const TASKS: usize = 3;
/// Requests of each.
pub const STEPS: usize = 4;
const SEEDS: u64 = 100;

/// What every file system answers alike, whatever numbers it gives to objects.
pub type Told = Result<&'static str, Error>;

/// A name at the end: in which directory, which, and how many names its object has.
pub type Named = (usize, String, u32);

/// The tasks that a seed stands for.
#[must_use]
pub fn draw(seed: u64) -> Vec<Vec<Op>> {
    tasks(&mut Rng::with_seed(seed))
}

fn tasks(rng: &mut Rng) -> Vec<Vec<Op>> {
    let task = |_| (0..STEPS).map(|_| Op::draw(rng)).collect();
    (0..TASKS).map(task).collect()
}

/// Whether the model tells tasks the same in some order of their requests, and ends with the same names, in
/// the order of directories and names. It begins with a directory 0 that has a directory 1 under the name "e",
/// and a file under the name "a".
#[must_use]
pub fn is_explained(tasks: &[Vec<Op>], told: &[Vec<Told>], end: &[Named]) -> bool {
    explains(tasks, told, end, &mut Vec::new())
}

/// Tasks at the same time, whose answers and whose names in the end the model gives in some order.
pub fn some_order_explains_what_tasks_are_told(make: &dyn Fn() -> Fixture) {
    some_order_explains_what_some_tasks_are_told(1, make);
}

/// The same with one of so many of an ordinary run's histories.
pub fn some_order_explains_what_some_tasks_are_told(of: u64, make: &dyn Fn() -> Fixture) {
    for seed in 0..SEEDS.div_ceil(of) {
        let mut rng = Rng::with_seed(seed);
        let tasks = tasks(&mut rng);
        let fixture = make();
        let place = Place::new(&fixture);
        let told = at_the_same_time(&fixture, &place, &tasks, &mut rng);
        let end = place.names(&fixture);
        assert!(
            is_explained(&tasks, &told, &end),
            "seed {seed}: no order of {tasks:?} tells {told:?}, ends in {end:?}"
        );
    }
}

/// Where tasks work: a directory and one in it.
struct Place {
    directories: [Handle; 2],
}

impl Place {
    fn new(fixture: &Fixture) -> Self {
        let outer = fixture.directory(&Caller::ROOT, fixture.root(), "d", 0o777);
        let inner = fixture.directory(&Caller::ROOT, outer, "e", 0o777);
        fixture.file(&Caller::ROOT, outer, "a", 0o666);
        let directories = [outer, inner];
        Self { directories }
    }

    /// The names in both, and how many names each object has. One that is gone has none.
    fn names(&self, fixture: &Fixture) -> Vec<Named> {
        let mut names = Vec::new();
        for (number, directory) in self.directories.into_iter().enumerate() {
            let listed = list(fixture, &Caller::ROOT, directory, 4096).unwrap_or_default();
            for (name, file) in listed {
                let links = fixture.stat(Handle { file, ..directory }).links;
                names.push((number, name.to_string(), links));
            }
        }
        names
    }
}

/// One request on the place's directories and a few names.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new file, refused if the name is taken.
    File(usize, &'static str),
    /// A new directory.
    Directory(usize, &'static str),
    /// A name less, whatever it leads to.
    Remove(usize, &'static str),
    /// From a directory and a name to others.
    Rename(usize, &'static str, usize, &'static str),
    /// What a name leads to.
    Lookup(usize, &'static str),
    /// A further name for the inner directory, which is refused.
    Link(usize, &'static str),
}

impl Op {
    fn draw(rng: &mut Rng) -> Self {
        let names = ["a", "b", "e"];
        let mut place = || (rng.usize(..2), names[rng.usize(..3)]);
        let ((d, n), (e, m)) = (place(), place());
        match rng.u8(..12) {
            0..2 => Self::File(d, n),
            2 => Self::Directory(d, n),
            3..6 => Self::Remove(d, n),
            6..10 => Self::Rename(d, n, e, m),
            10 => Self::Link(d, n),
            _ => Self::Lookup(d, n),
        }
    }

    fn request(self, place: &Place) -> Request {
        let at = |directory: usize| place.directories[directory];
        match self {
            Self::File(d, name) => create_file(at(d), name, CreateHow::Guarded, 0o600),
            Self::Directory(d, name) => create(at(d), name, New::Directory, 0o700),
            Self::Remove(d, name) => remove(at(d), name),
            Self::Rename(d, name, e, to) => rename(at(d), name, at(e), to),
            Self::Lookup(d, name) => Request::Lookup(at(d), super::name(name)),
            // A directory has no further names: the refusal has its place in the order too.
            Self::Link(d, name) => link(at(1), at(d), name),
        }
    }
}

fn tell(answer: Result<Answer, Error>) -> Told {
    answer.map(|answer| match answer {
        Answer::Found(_, attributes) if attributes.kind == files::Kind::Directory => "directory",
        Answer::Found(..) => "file",
        Answer::Renamed { from, .. } if from.before == from.after => "nothing to do",
        _ => "done",
    })
}

/// Polls the tasks in an order that the seed gives.
fn at_the_same_time(
    fixture: &Fixture,
    place: &Place,
    tasks: &[Vec<Op>],
    rng: &mut Rng,
) -> Vec<Vec<Told>> {
    let told: RefCell<Vec<Vec<Told>>> = RefCell::new(vec![Vec::new(); tasks.len()]);
    let caller = Caller::ROOT;
    let task = async |number: usize| {
        for op in &tasks[number] {
            let answer = fixture.fs().call(&caller, op.request(place)).await;
            told.borrow_mut()[number].push(tell(answer));
            // Another task's turn, also where nothing waits.
            let mut is_second = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                let was_second = std::mem::replace(&mut is_second, true);
                if was_second {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
    };
    let mut left: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    for number in 0..tasks.len() {
        left.push(Box::pin(task(number)));
    }
    fixture.run(poll_fn(|context| {
        rng.shuffle(&mut left);
        left.retain_mut(|task| task.as_mut().poll(context).is_pending());
        if left.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    drop(left);
    told.into_inner()
}

/// Whether some order that begins with these tasks' steps tells the same and ends the same.
fn explains(tasks: &[Vec<Op>], told: &[Vec<Told>], end: &[Named], order: &mut Vec<usize>) -> bool {
    let fixture = model();
    let place = Place::new(&fixture);
    let mut taken = vec![0; tasks.len()];
    for &task in &*order {
        let request = tasks[task][taken[task]].request(&place);
        let answer = tell(fixture.call(&Caller::ROOT, request));
        if answer != told[task][taken[task]] {
            return false;
        }
        taken[task] += 1;
    }
    if order.len() == tasks.iter().map(Vec::len).sum() {
        return place.names(&fixture) == end;
    }
    (0..tasks.len()).any(|task| {
        taken[task] < tasks[task].len() && {
            order.push(task);
            let is_found = explains(tasks, told, end, order);
            order.pop();
            is_found
        }
    })
}
