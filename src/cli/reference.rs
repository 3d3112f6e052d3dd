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
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
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
