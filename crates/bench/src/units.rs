//! Numbers as people write them: sizes and durations with units, and windows.

use std::time::Duration;

use clap::ValueEnum;

use crate::cache::Rates;

/// No duration is longer: sums of moments and durations stay within 64 bits of nanoseconds.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Settings as they are when the command line says nothing of them.
///
/// # Panics
/// When a setting has no default.
pub fn usual<T: clap::Args>() -> T {
    let command = T::augment_args(clap::Command::new("usual"));
    let matches = command.try_get_matches_from(["usual"]);
    let usual = matches.and_then(|matches| T::from_arg_matches(&matches));
    usual.expect("each setting has a default")
}

/// What a value is called on command lines and in reports.
pub fn name_of(value: &impl ValueEnum) -> String {
    let shown = value.to_possible_value();
    shown.map_or_else(String::new, |shown| shown.get_name().to_string())
}

/// What it means, in a line: the variant's documentation.
pub fn help_of(value: &impl ValueEnum) -> String {
    let shown = value.to_possible_value();
    let help = shown.as_ref().and_then(|shown| shown.get_help());
    help.map_or_else(String::new, ToString::to_string)
}

/// Splits `12.5MiB` into a number and a unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, text[end..].trim()))
}

/// Bytes: `4096`, `64K`, `100MiB`, `1.5G`. K, M, G and T are powers of 1024, with or without `iB`
/// or `B`.
///
/// # Errors
/// What is wrong with the text.
pub fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is no size; write 4096, 64K, 100M or 1.5G");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let bytes = number * (1u64 << shift) as f64;
    if bytes >= (1u64 << 62) as f64 {
        return Err(format!("`{text}` is more than any machine has"));
    }
    Ok(bytes as usize)
}

/// A number between two others.
///
/// # Errors
/// What is wrong with it.
pub fn count<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(count) if (MIN..=MAX).contains(&count) => Ok(count),
        _ => Err(format!("`{text}` is no number between {MIN} and {MAX}")),
    }
}

/// As [`size`], between two of them.
///
/// # Errors
/// What is wrong with the text.
pub fn size_of<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if (MIN..=MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        let (min, max) = (show_size(MIN), show_size(MAX));
        Err(format!("`{text}` is not between {min} and {max}"))
    }
}

/// As [`size`], where more than memory has is meant.
///
/// # Errors
/// What the text should look like.
pub fn bytes(text: &str) -> Result<u64, String> {
    size(text).map(|bytes| bytes as u64)
}

/// A duration: `90s`, `5m`, `250ms`, `1h`, `7d`; a bare number is seconds.
///
/// # Errors
/// What is wrong with the text.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; write 250ms, 90s, 5m, 1h or 7d");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(duration) if duration <= DURATION_MAX => Ok(duration),
        _ => Err(format!("`{text}` is longer than a hundred years")),
    }
}

/// Requests a second, `auto` or several of them: `250k`, `1M,2M`. K and M are powers of 1000.
///
/// # Errors
/// What is wrong with the text.
pub fn rates(text: &str) -> Result<Rates, String> {
    if text == "auto" {
        return Ok(Rates::Auto);
    }
    let rates = text.split(',').map(rate).collect::<Result<_, _>>()?;
    Ok(Rates::These(rates))
}

/// Requests a second: `50000`, `250k`, `1.5M`.
///
/// # Errors
/// What is wrong with the text.
pub fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no rate; write 50000, 250k, 1.5M or auto");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        _ => return Err(wrong()),
    };
    let per_second = number * factor;
    if (1.0..=1e9).contains(&per_second) {
        Ok(per_second)
    } else {
        Err(format!("`{text}` is not between 1 and 10^9 a second"))
    }
}

/// A window: a power of two, 1 to 1024.
///
/// # Errors
/// What is wrong with the text.
pub fn window(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(window) if window.is_power_of_two() && window <= 1024 => Ok(window),
        _ => Err(format!("`{text}` is no power of two between 1 and 1024")),
    }
}

/// Bytes for people: `64 MiB`.
pub fn show_size(bytes: usize) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let one = 1usize << shift;
        if bytes >= one {
            let whole = bytes as f64 / one as f64;
            return if bytes.is_multiple_of(one) {
                format!("{whole} {unit}")
            } else {
                format!("{whole:.1} {unit}")
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a text is read as it should be; of those that should not be, whether it is refused.
    fn read<T: PartialEq + std::fmt::Debug>(
        parse: impl Fn(&str) -> Result<T, String>,
        right: &[(&str, T)],
        wrong: &[&str],
    ) {
        for (text, value) in right {
            assert_eq!(parse(text).as_ref(), Ok(value), "{text}");
        }
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_people_write_is_read() {
        let sizes = [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65_536),
            ("64 KiB", 65_536),
            ("1.5g", 3 << 29),
            ("2mb", 2 << 20),
            ("1T", 1 << 40),
        ];
        let wrong = ["", "x", "-1", "1X", "1e99G", "99999999999T", "1..2"];
        read(size, &sizes, &wrong);
        let bounded = size_of::<1024, 4096>;
        read(bounded, &[("1K", 1024), ("4K", 4096)], &["1023", "x"]);
        let refusal = Err("`5K` is not between 1 KiB and 4 KiB".to_string());
        assert_eq!(bounded("5K"), refusal);
        read(
            count::<1, 256>,
            &[("1", 1), ("256", 256)],
            &["0", "257", "x"],
        );
        let times = [
            ("250ms", 250),
            ("90s", 90_000),
            ("5m", 300_000),
            ("2", 2000),
        ];
        let times = times.map(|(text, ms)| (text, Duration::from_millis(ms)));
        read(duration, &times, &["", "s", "-1s", "1y", "1e400", "36501d"]);
        assert_eq!(duration("36500d"), Ok(DURATION_MAX));
        let some = Rates::These(vec![50_000.0, 250_000.0, 1_500_000.0]);
        let rights = [("auto", Rates::Auto), ("50000,250k,1.5M", some)];
        read(
            rates,
            &rights,
            &["", "0", "-1", "1x", "1k,", "1e9G", "2000M"],
        );
        read(
            window,
            &[("1", 1), ("1024", 1024)],
            &["", "0", "3", "2048", "-2"],
        );
    }

    #[test]
    fn sizes_are_shown() {
        assert_eq!(show_size(64 << 20), "64 MiB");
        assert_eq!(show_size(3 << 29), "1.5 GiB");
        assert_eq!(show_size(100), "100 B");
    }
}
