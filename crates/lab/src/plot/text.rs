//! How much room text takes. Nobody here has the reader's font, so these are cautious guesses.

/// The width of text of a size, in the picture's lengths.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let ems: f64 = text.chars().map(em).sum();
    ems * size
}

fn em(char: char) -> f64 {
    match char {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' => 0.3,
        ' ' | 'f' | 'r' | 't' | '(' | ')' | '-' | '/' | 'I' | '·' => 0.38,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.9,
        'A'..='Z' | '×' | '=' | '+' => 0.7,
        char if char.is_ascii() => 0.58,
        // What is not Latin is often wide.
        'µ' | 'à'..='ÿ' => 0.6,
        _ => 1.0,
    }
}

/// Text cut to a width.
pub(super) fn cut(text: &str, size: f64, width_max: f64) -> String {
    if width(text, size) <= width_max {
        return text.to_string();
    }
    let mut short = String::new();
    for char in text.chars() {
        short.push(char);
        if width(&short, size) + size > width_max {
            short.pop();
            break;
        }
    }
    short.push('…');
    short
}

/// Text broken into lines of a width, at most `lines_max`.
pub(super) fn wrap(text: &str, size: f64, width_max: f64, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= width_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    if lines.len() > lines_max {
        let rest = lines.split_off(lines_max.max(1) - 1).join(" ");
        lines.push(rest);
    }
    lines
        .iter()
        .map(|line| cut(line, size, width_max))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_where_it_is_put() {
        assert_eq!(cut("short", 10.0, 100.0), "short");
        let cut = cut("a text that is much too long", 10.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 60.0, "{cut}");
        let lines = wrap("one two three four five six", 10.0, 60.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(
            lines.iter().all(|line| width(line, 10.0) <= 60.0),
            "{lines:?}"
        );
        assert!(wrap("", 10.0, 60.0, 2).is_empty());
    }
}
