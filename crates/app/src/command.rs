//! The subcommands: arguments in, exit code out.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wellhead_telemetry::{clock, log};

use crate::assemble::Authorities;
use crate::cli::{Cli, Command, Serve, completions, man};
use crate::config::{self, Overrides, Settings};
use crate::reload::{self, ReadConfig, ReloadSource};
use crate::systemd::GivenSockets;
use crate::terminal::{CommandError, complain, environment, rendered, say};
use crate::{analyze, demo, doctor, explain, handover, key, serve, state, token};

/// Exit code of a config or an argument that cannot work, and of a check that failed.
const BAD_CONFIG: u8 = 1;
/// Exit code of a system that did not give what was needed.
const FAILED: u8 = 2;
/// Exit code of a comparison that found a difference.
const DIFFERS: u8 = 3;

/// Parses the arguments and does what they ask.
pub fn run() -> ExitCode {
    if let Some(code) = handover::starter::run() {
        return code;
    }
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(arguments) => serve_command(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Check(arguments) => check_command(arguments.config.as_deref()),
        Command::Doctor(arguments) => doctor::command(&arguments),
        Command::Explain(arguments) => explain::command(&arguments),
        Command::Log(arguments) => crate::log::command(&arguments),
        Command::Reload(arguments) => reload::command::command(&arguments),
        Command::Upgrade(arguments) => handover::command::command(&arguments),
        Command::Key(command) => key::command(&command),
        Command::Token(arguments) => token::command(&arguments),
        Command::Analyze(arguments) => analyze::command(&arguments.what),
        Command::Schema => {
            let schema = serde_json::to_string_pretty(&config::schema());
            schema.map_err(CommandError::system).map(|text| say(&text))
        }
        Command::Man(arguments) => man_command(&arguments.folder),
        Command::Completions(arguments) => {
            completions(arguments.shell, &mut std::io::stdout());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (code, text) = match failure {
                CommandError::Config(text) => (BAD_CONFIG, text),
                CommandError::System(text) => (FAILED, text),
                CommandError::Unwell => return ExitCode::from(BAD_CONFIG),
                CommandError::Differs => return ExitCode::from(DIFFERS),
                CommandError::Unmet(outcome) => return ExitCode::from(outcome.exit_code()),
            };
            complain(&text);
            ExitCode::from(code)
        }
    }
}

fn settings(arguments: &Serve) -> Result<Settings, CommandError> {
    let overrides = Overrides {
        listen: arguments.listen,
        admin: arguments.admin.clone(),
        ..Overrides::default()
    };
    let (settings, warnings) = if arguments.urls.is_empty() {
        let path = config::find(arguments.config.as_deref())
            .map_err(|error| CommandError::Config(error.to_string()))?;
        let loaded = config::load(&path, &environment, overrides)
            .map_err(|report| CommandError::Config(rendered(&report)))?;
        (loaded.settings, loaded.warnings)
    } else {
        Settings::from_urls(&arguments.urls, arguments.listen, arguments.admin.clone())
            .map_err(|report| CommandError::Config(rendered(&report)))?
    };
    if !warnings.is_empty() {
        complain(&rendered(&warnings));
    }
    let Some(file) = &arguments.keys else { return Ok(settings) };
    // Without a key in it no client could call, and nothing would say why.
    let keys = crate::config::read_keys(file)
        .map_err(|problems| CommandError::Config(format!("--keys: {}", problems.join("\n"))))?;
    if keys.is_empty() {
        complain(&format!(
            "--keys: there is no key in `{}`: `wellhead key create` makes one",
            file.display()
        ));
    }
    Ok(settings.with_keys(file.clone()))
}

fn serve_command(arguments: &Serve) -> Result<(), CommandError> {
    let began = clock::system_time();
    let mut settings = settings(arguments)?;
    let given = GivenSockets::take().map_err(CommandError::system)?;
    log::start(&settings.log.level.0, settings.log.format).map_err(CommandError::Config)?;
    raise_file_limit();
    let kept = keep_what_is_spent(&mut settings);
    let running = serve::start(&Arc::new(settings), given).map_err(CommandError::system)?;
    let running = running.reloading(reload_source(arguments, kept, began)).handing_over();
    let addresses = running.addresses.clone();
    for chain in running.proxy.load().chains() {
        let upstreams = chain.roster.upstreams().len();
        tracing::info!(chain = &*chain.name.name, upstreams, "serving chain");
    }
    tracing::info!(
        listen = %addresses.listen,
        admin = %addresses.admin,
        version = env!("CARGO_PKG_VERSION"),
        "wellhead is up"
    );
    let runtime = serve::runtime().map_err(CommandError::system)?;
    let ended = runtime.block_on(running.control(std::future::pending(), || ()));
    // A file on a disk that hangs is not waited for.
    runtime.shutdown_background();
    ended.map_err(CommandError::system)
}

/// A connection is a file: as many may be open as the hard limit allows. Shells and services often begin with 1,024.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is: `wellhead doctor` says whether it is enough");
    }
}

/// Where the settings are read again; `None` where they come from the command line. `state`: the default file that
/// is in use. `began`: before they were read for the first time.
fn reload_source(
    arguments: &Serve,
    state: Option<PathBuf>,
    began: SystemTime,
) -> Option<ReloadSource> {
    if !arguments.urls.is_empty() {
        return None;
    }
    let path = config::find(arguments.config.as_deref()).ok()?;
    let (from, listen, admin) = (path.clone(), arguments.listen, arguments.admin.clone());
    let keys = arguments.keys.clone();
    let read = move || {
        let overrides = Overrides { listen, admin: admin.clone(), ..Overrides::default() };
        let loaded = config::load(&from, &environment, overrides);
        let loaded = loaded.map_err(|report| report.render(false))?;
        let mut settings = loaded.settings;
        settings.state = settings.state.or_else(|| state.clone());
        if let Some(keys) = &keys {
            settings = settings.with_keys(keys.clone());
        }
        let warnings = match loaded.warnings.is_empty() {
            true => String::new(),
            false => loaded.warnings.render(false),
        };
        let authorities = Authorities::read(&settings);
        Ok(ReadConfig { settings, authorities, warnings })
    };
    Some(ReloadSource { path, began, read: Arc::new(read) })
}

/// A cap that a restart forgets is none: where the settings name no file, a default one is used. Returns that.
fn keep_what_is_spent(settings: &mut Settings) -> Option<PathBuf> {
    if settings.state.is_some() || !settings.has_caps() {
        return None;
    }
    let Some(path) = state::default_path(&environment) else {
        tracing::warn!(
            "spending against the caps is lost at a restart: neither `state` nor STATE_DIRECTORY, XDG_STATE_HOME or HOME is set"
        );
        return None;
    };
    match state::prepare(&path) {
        Ok(()) => {
            tracing::info!(path = %path.display(), "`state` is not set: spending against the caps is kept in this file");
            settings.state = Some(path.clone());
            Some(path)
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "spending against the caps is lost at a restart: `state` is not set, and the default file cannot be written");
            None
        }
    }
}

fn man_command(folder: &std::path::Path) -> Result<(), CommandError> {
    let pages = man::write_pages(folder).map_err(|error| {
        CommandError::System(format!("`{}` cannot be written to: {error}", folder.display()))
    })?;
    say(&format!("{pages} pages in {}", folder.display()));
    Ok(())
}

fn check_command(named: Option<&std::path::Path>) -> Result<(), CommandError> {
    let path = config::find(named).map_err(|error| CommandError::Config(error.to_string()))?;
    let loaded = config::load(&path, &environment, Overrides::default())
        .map_err(|report| CommandError::Config(rendered(&report)))?;
    if !loaded.warnings.is_empty() {
        complain(&rendered(&loaded.warnings));
    }
    say(&loaded.settings.render());
    Ok(())
}
