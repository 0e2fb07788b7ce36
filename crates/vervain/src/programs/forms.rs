//! How `vervain env` writes variables: for the shell, the tool or the CI that reads them.

use anyhow::bail;
use clap::ValueEnum;

/// Who reads the variables.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `export NAME=VALUE`, for sh, bash and zsh: eval "$(vervain env)".
    Shell,
    /// `set -gx NAME VALUE`, for fish: vervain env --format fish | source.
    Fish,
    /// `NAME=VALUE` as it is, for files that take a variable a line: GitHub's $GITHUB_ENV, GitLab's
    /// dotenv reports, `docker run --env-file`.
    #[value(name = "github", alias = "dotenv")]
    Dotenv,
}

impl Form {
    /// A variable as its reader takes it.
    ///
    /// # Errors
    /// A line cannot hold a value of several lines, where the form has no quotes.
    pub(super) fn line(self, name: &str, value: &str) -> anyhow::Result<String> {
        Ok(match self {
            Form::Shell => format!("export {name}={}", quoted(value)),
            Form::Fish => {
                let value = value.replace('\\', r"\\").replace('\'', r"\'");
                format!("set -gx {name} '{value}'")
            }
            Form::Dotenv if value.contains(['\n', '\r']) => {
                bail!("{name} has a value of several lines, which this form cannot hold")
            }
            Form::Dotenv => format!("{name}={value}"),
        })
    }
}

/// As a shell reads it as one word.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+,@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const ODD: [&str; 7] = ["", "a b", "it's", "$HOME", "a\nb", "`x`", r"\'\\"];

    /// What a shell has in the variable after it has read the line.
    fn read_by(shell: &str, form: Form, value: &str) -> String {
        let line = form.line("SEEN", value).expect("quotes");
        let script = format!("{line}\nprintenv SEEN");
        let read = Command::new(shell).args(["-c", &script]).output();
        let mut read = String::from_utf8(read.expect("a shell").stdout).expect("UTF-8");
        assert_eq!(read.pop(), Some('\n'), "printenv ends its line");
        read
    }

    #[test]
    fn the_forms_are_those_that_the_readme_names() {
        let names = Form::value_variants().iter().map(|form| {
            let value = form.to_possible_value().expect("none is hidden");
            value.get_name().to_string()
        });
        let flag = format!("`--format {}`", names.collect::<Vec<_>>().join(" "));
        let readme = include_str!("../../../../README.md");
        assert!(readme.contains(&flag), "{flag}");
    }

    #[test]
    fn a_shell_reads_what_is_quoted_as_one_word() {
        assert_eq!(quoted("/usr/lib/a.so:/b"), "/usr/lib/a.so:/b");
        for text in ODD {
            assert_eq!(read_by("sh", Form::Shell, text), text);
        }
    }

    #[test]
    fn fish_reads_what_is_quoted_as_one_word() {
        if Command::new("fish").arg("--version").output().is_err() {
            // Its manual: in single quotes only these two are special.
            let line = Form::Fish.line("SEEN", r"it's \ $HOME").expect("quotes");
            assert_eq!(line, r"set -gx SEEN 'it\'s \\ $HOME'");
            return;
        }
        for text in ODD {
            assert_eq!(read_by("fish", Form::Fish, text), text);
        }
    }

    #[test]
    fn a_file_of_variables_holds_one_a_line() {
        let line = Form::Dotenv.line("SEEN", "a 'b' $c").expect("one line");
        assert_eq!(line, "SEEN=a 'b' $c");
        assert!(Form::Dotenv.line("SEEN", "a\nb").is_err());
    }
}
