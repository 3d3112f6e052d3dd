//! `docs/cli.md`, generated from the definition of the command line.

use std::fmt::Write;

use clap::Command;

use super::command_line::definition;

/// Every command's help, as Markdown.
pub fn reference() -> String {
    let mut command = definition().term_width(100).disable_help_flag(false);
    command.build();
    let mut out = String::from(
        "# Command line reference\n\nGenerated from the program; `driftless COMMAND --help` prints the same text. To \
         generate this page: `UPDATE_DOCS=1 cargo test --test it cli::`.\n",
    );
    section(&mut out, &mut command, "driftless");
    let names: Vec<String> =
        command.get_subcommands().filter(|it| !it.is_hide_set()).map(|it| it.get_name().to_owned()).collect();
    for name in names {
        if let Some(sub) = command.find_subcommand_mut(&name) {
            section(&mut out, sub, &format!("driftless {name}"));
            for below in sub.get_subcommands_mut() {
                let below_name = format!("driftless {name} {}", below.get_name());
                section(&mut out, below, &below_name);
            }
        }
    }
    out
}

fn section(out: &mut String, command: &mut Command, name: &str) {
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    write!(out, "\n## {name}\n\n```\n{}\n```\n", help.join("\n").trim_end())
        .expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &Command, name: &str, wrong: &mut Vec<String>) -> usize {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let too_long = after.lines().filter(|line| line.chars().count() > 80);
        wrong.extend(too_long.map(|line| format!("{name}: more than 80 columns: {line}")));
        let arguments = command.get_arguments().filter(|it| !it.is_hide_set());
        let silent = arguments.filter(|it| it.get_help().is_none());
        wrong.extend(silent.map(|argument| format!("{name}: {} has no help", argument.get_id())));
        let below = command.get_subcommands().filter(|it| !it.is_hide_set());
        1 + below.map(|it| check(it, &format!("{name} {}", it.get_name()), wrong)).sum::<usize>()
    }

    #[test]
    fn help_fits_into_80_columns_and_describes_all_arguments() {
        let mut command = definition();
        command.build();
        let mut wrong = Vec::new();
        assert!(check(&command, "driftless", &mut wrong) > 30);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn only_server_and_token_are_about_the_connection() {
        let mut command = definition();
        command.build();
        let status = command.find_subcommand("rollout").and_then(|it| it.find_subcommand("status")).unwrap();
        let heading =
            |id: &str| status.get_arguments().find(|it| it.get_id() == id).unwrap().get_help_heading();
        assert_eq!(heading("server"), Some("Connection to the agent"));
        assert_eq!((heading("timeout"), heading("watch")), (None, None));
    }
}
