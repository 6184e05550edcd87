//! Cookies: read from a request, set with an answer.

use http::{HeaderMap, HeaderValue, header};

/// Which cookies a server uses. Over https their names begin such that a browser takes them over https and from this very host
/// only; a page on a neighbouring name cannot plant one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cookies {
    pub(super) secure: bool,
}

/// What the dashboard keeps in a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cookie {
    /// Who is signed in.
    Session,
    /// The tenant that a key for all tenants looks at.
    Tenant,
    /// What is to be said on the next page.
    Flash,
    /// Which browser was shown the form to sign in.
    Door,
}

impl Cookie {
    const fn name(self) -> &'static str {
        match self {
            Self::Session => "postrider_session",
            Self::Tenant => "postrider_tenant",
            Self::Flash => "postrider_flash",
            Self::Door => "postrider_door",
        }
    }

    /// How long a browser keeps it.
    const fn seconds(self) -> u32 {
        match self {
            Self::Session => 12 * 3_600,
            Self::Tenant => 30 * 86_400,
            Self::Flash => 120,
            Self::Door => 3_600,
        }
    }
}

impl Cookies {
    fn name(self, cookie: Cookie) -> String {
        let prefix = if self.secure { "__Host-" } else { "" };
        format!("{prefix}{}", cookie.name())
    }

    /// Every value under the cookie's name: a browser may send several.
    pub(super) fn all(self, headers: &HeaderMap, cookie: Cookie) -> Vec<&str> {
        let name = self.name(cookie);
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        lines
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(found, value)| *found == name && !value.is_empty())
            .map(|(_, value)| value)
            .collect()
    }

    /// The line that sets it; without a value, the one that removes it.
    pub(super) fn set(self, cookie: Cookie, value: Option<&str>) -> HeaderValue {
        let secure = if self.secure { "; Secure" } else { "" };
        let seconds = value.map_or(0, |_| cookie.seconds());
        let line = format!(
            "{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}",
            self.name(cookie),
            value.unwrap_or_default()
        );
        HeaderValue::from_str(&line).expect("names and values are printable ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_for_this_host_only_and_for_no_script() {
        let plain = Cookies { secure: false }.set(Cookie::Session, Some("a"));
        assert_eq!(plain, "postrider_session=a; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
        let secure = Cookies { secure: true }.set(Cookie::Flash, None);
        assert_eq!(secure, "__Host-postrider_flash=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure");
    }

    #[test]
    fn they_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; postrider_session=one; postrider_session="));
        headers.append(header::COOKIE, HeaderValue::from_static("postrider_session=two;x"));
        assert_eq!(Cookies { secure: false }.all(&headers, Cookie::Session), ["one", "two"]);
        assert!(Cookies { secure: true }.all(&headers, Cookie::Session).is_empty());
    }
}
