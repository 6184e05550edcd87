//! Where values come from: a file, overridden by variables, overridden by flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::key::Key;
use crate::failure::{Exit, Failure};

/// The file that is read when no other is named, if it is there.
const DEFAULT_FILE: &str = "postrider.toml";

/// Where one value came from, the weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl Source {
    /// What is stronger overrides what is weaker.
    pub(crate) fn strength(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(_) => 1,
            Self::Variable(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    /// In quotes, in a variable or in a flag; lists are comma-separated.
    Text(String),
    /// A number or a truth value of TOML.
    Bare(String),
    /// An array of TOML.
    List(Vec<String>),
}

/// What was written, by key, with the strongest source of each.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) values: BTreeMap<Key, (Written, Source)>,
}

/// Flags of one command that set keys.
pub(crate) type Flags = Vec<(Key, String)>;

impl Layers {
    /// Everything that this process was told.
    pub(crate) fn gather(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        flags: Flags,
    ) -> Result<Self, Failure> {
        let mut layers = Self::default();
        layers.read_file(file)?;
        layers.read_variables(variables)?;
        for (key, text) in flags {
            layers.values.insert(key, (Written::Text(text), Source::Flag(key.flag())));
        }
        Ok(layers)
    }

    fn read_file(&mut self, named: Option<&Path>) -> Result<(), Failure> {
        let path = named.unwrap_or(Path::new(DEFAULT_FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => return Ok(()),
            Err(error) => {
                let message = format!("cannot read the configuration file `{}`: {error}", path.display());
                return Err(Failure::new(Exit::Usage, "config_unreadable", message).hint(
                    "check --config and POSTRIDER_CONFIG; without them, `postrider.toml` is read if it is there",
                ));
            }
        };
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // The library's own text quotes the line, which may hold a secret.
            let place = error.span().map(|span| place_in(&text, span.start)).unwrap_or_default();
            let message = format!("`{}` is not TOML{place}: {}", path.display(), error.message());
            Failure::new(Exit::Refused, "config_not_toml", message)
        })?;
        for (name, value) in table {
            let Some(key) = Key::named(&name) else {
                return Err(unknown_key(&name, path));
            };
            let written = written(key, value, path)?;
            self.values.insert(key, (written, Source::File(path.to_owned())));
        }
        Ok(())
    }

    fn read_variables(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<(), Failure> {
        for (name, value) in variables {
            let Some(key) = name.to_str().and_then(key_of_variable) else { continue };
            let variable = key.variable();
            let Some(text) = value.to_str() else {
                let message = format!("the variable {variable} is not UTF-8");
                return Err(Failure::new(Exit::Refused, "config_value_invalid", message));
            };
            self.values.insert(key, (Written::Text(text.to_owned()), Source::Variable(variable)));
        }
        Ok(())
    }
}

fn key_of_variable(name: &str) -> Option<Key> {
    let rest = name.strip_prefix("POSTRIDER_")?;
    Key::ALL.into_iter().find(|key| key.name().to_ascii_uppercase() == rest)
}

fn unknown_key(name: &str, path: &Path) -> Failure {
    let shown = crate::output::plain(name, 64);
    let message = format!("`{shown}` in `{}` is not a key of the configuration", path.display());
    let failure = Failure::new(Exit::Refused, "config_key_unknown", message);
    match Key::nearest(name) {
        Some(key) => failure.hint(format!("did you mean `{key}`?")),
        None => failure.hint("`postrider config` lists every key"),
    }
}

fn written(key: Key, value: toml::Value, path: &Path) -> Result<Written, Failure> {
    let refuse = |kind: &str| {
        let message = format!("{key} in `{}` is {kind}; it must be a plain value or an array of texts", path.display());
        Failure::new(Exit::Refused, "config_value_invalid", message)
    };
    Ok(match value {
        toml::Value::String(text) => Written::Text(text),
        toml::Value::Integer(number) => Written::Bare(number.to_string()),
        toml::Value::Float(number) => Written::Bare(number.to_string()),
        toml::Value::Boolean(truth) => Written::Bare(truth.to_string()),
        toml::Value::Array(items) => {
            let texts = items.into_iter().map(|item| match item {
                toml::Value::String(text) => Ok(text),
                _ => Err(refuse("an array of something else than texts")),
            });
            Written::List(texts.collect::<Result<_, _>>()?)
        }
        toml::Value::Table(_) => return Err(refuse("a table")),
        toml::Value::Datetime(_) => return Err(refuse("a date")),
    })
}

fn place_in(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.split('\n').count();
    let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
    format!(" (line {line}, column {column})")
}
