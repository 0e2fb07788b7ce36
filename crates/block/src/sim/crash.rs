//! What survives the loss of power.

use std::sync::Arc;

use super::Image;

/// A write that the device may forget.
#[derive(Debug)]
pub(super) struct Volatile {
    pub(super) at: u64,
    pub(super) bytes: Box<[u8]>,
    /// It was asked to be durable: once it has ended, nothing forgets it.
    pub(super) is_durable: bool,
}

/// A device at one moment: what would be there after the loss of power, as far as that is decided.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) event: u64,
    pub(super) block: usize,
    pub(super) sector: usize,
    /// What is there in any case.
    pub(super) durable: Image,
    /// Ended since, in this order.
    pub(super) ended: Vec<Arc<Volatile>>,
    /// Not ended.
    pub(super) in_flight: Vec<Arc<Volatile>>,
}

/// What of the writes that nothing has made durable the loss of power takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of them: exactly what was promised is left.
    All,
    /// None, those under way included.
    None,
    /// Each or not, drawn from the seed.
    Some(u64),
    /// Each block of each or not, drawn from the seed.
    Torn(u64),
}

impl Snapshot {
    /// When it was taken: see [`super::SimDevice::events`].
    #[must_use]
    pub fn event(&self) -> u64 {
        self.event
    }

    /// The bytes that survive, drawn from `seed`.
    ///
    /// What a flush or a durable write has promised is there. Every other write since is there or
    /// not, block by block or as a whole, whatever came before or after it; of several to one block,
    /// an earlier one may be what is left. One seed in eight each keeps nothing and everything.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Image {
        let mut rng = fastrand::Rng::with_seed(seed);
        let odds = Odds::draw(&mut rng);
        self.draw(&odds, rng)
    }

    /// The bytes that survive a loss of this kind.
    #[must_use]
    pub fn after(&self, loss: Loss) -> Image {
        let (write, torn, seed) = match loss {
            Loss::All => (0.0, 0.0, 0),
            Loss::None => (1.0, 0.0, 0),
            Loss::Some(seed) => (0.5, 0.0, seed),
            Loss::Torn(seed) => (1.0, 1.0, seed),
        };
        self.draw(&Odds { write, torn }, fastrand::Rng::with_seed(seed))
    }

    fn draw(&self, odds: &Odds, mut rng: fastrand::Rng) -> Image {
        let mut image = self.durable.clone();
        for write in &self.ended {
            self.apply(&mut image, write, write.is_durable, odds, &mut rng);
        }
        // They may reach the medium in any order.
        let mut in_flight: Vec<_> = self.in_flight.iter().collect();
        rng.shuffle(&mut in_flight);
        for write in in_flight {
            self.apply(&mut image, write, false, odds, &mut rng);
            if self.sector > self.block && odds.torn > 0.0 {
                self.spoil(&mut image, write, &mut rng);
            }
        }
        image
    }

    /// Power went while a sector was written of which the write covers a part.
    fn spoil(&self, image: &mut Image, write: &Volatile, rng: &mut fastrand::Rng) {
        let sector = self.sector as u64;
        let ends = [write.at, write.at + write.bytes.len() as u64];
        for end in ends.into_iter().filter(|end| !end.is_multiple_of(sector)) {
            if rng.u32(..4) == 0 {
                let garbage: Vec<u8> = (0..sector).map(|_| rng.u8(..)).collect();
                image.write(end / sector * sector, &garbage);
            }
        }
    }

    fn apply(
        &self,
        image: &mut Image,
        write: &Volatile,
        is_certain: bool,
        odds: &Odds,
        rng: &mut fastrand::Rng,
    ) {
        if is_certain {
            image.write(write.at, &write.bytes);
            return;
        }
        if rng.f64() >= odds.write {
            return;
        }
        let is_torn = rng.f64() < odds.torn;
        let mut at = write.at;
        for block in write.bytes.chunks(self.block) {
            if !is_torn || rng.bool() {
                image.write(at, block);
            }
            at += block.len() as u64;
        }
    }
}

/// How likely a write survives, and that it is torn then.
struct Odds {
    write: f64,
    torn: f64,
}

impl Odds {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let odds = |write, torn| Self { write, torn };
        match rng.u8(0..8) {
            0 => odds(0.0, 0.0),
            1 => odds(1.0, 0.0),
            2 => odds(1.0, 1.0),
            3 => odds(0.1, 0.5),
            4 => odds(0.9, 0.1),
            _ => odds(0.5, 0.5),
        }
    }
}
