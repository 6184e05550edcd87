//! What every page has: where one is, whose things these are, and a way to everywhere else.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use postrider::Scope;

use super::assets;
use super::flash::Flash;
use super::parts;
use super::viewer::Viewer;

/// The parts of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Deliveries,
    Dead,
    Endpoints,
    Events,
    Once,
    Audit,
    Keys,
}

impl Section {
    const ALL: [Self; 8] = [
        Self::Overview,
        Self::Deliveries,
        Self::Dead,
        Self::Endpoints,
        Self::Events,
        Self::Once,
        Self::Audit,
        Self::Keys,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Deliveries => "Deliveries",
            Self::Dead => "Dead letters",
            Self::Endpoints => "Endpoints",
            Self::Events => "Events",
            Self::Once => "Once-only",
            Self::Audit => "Audit",
            Self::Keys => "Keys",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Deliveries => "/deliveries",
            Self::Dead => "/dead",
            Self::Endpoints => "/endpoints",
            Self::Events => "/events",
            Self::Once => "/once",
            Self::Audit => "/audit",
            Self::Keys => "/keys",
        }
    }

    /// Which scope it takes to look at it.
    const fn scope(self) -> Scope {
        match self {
            Self::Audit | Self::Keys => Scope::Admin,
            _ => Scope::Read,
        }
    }
}

/// What is around a page's own part.
pub(super) struct Frame<'a> {
    pub(super) viewer: Option<&'a Viewer>,
    pub(super) section: Option<Section>,
    pub(super) title: &'a str,
    pub(super) flash: Option<&'a Flash>,
    pub(super) now: Timestamp,
}

/// The whole page.
pub(super) fn document(frame: &Frame<'_>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-now=(frame.now.as_millisecond()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (frame.title) " · Postrider" }
                link rel="icon" type="image/svg+xml" href=(assets::address("icon.svg"));
                link rel="stylesheet" href=(assets::address("style.css"));
                script src=(assets::address("script.js")) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                @match frame.viewer {
                    Some(viewer) => div.frame {
                        (head(frame, viewer))
                        main #main tabindex="-1" {
                            @if let Some(flash) = frame.flash { (notice(flash)) }
                            (body)
                        }
                    },
                    None => main #main.door tabindex="-1" { (body) },
                }
            }
        }
    }
}

fn head(frame: &Frame<'_>, viewer: &Viewer) -> Markup {
    html! {
        header.side {
            a.brand href="/" { (parts::mark()) span { "Postrider" } }
            form.find action="/find" role="search" {
                label.visually-hidden for="find" { "Find by id" }
                input #find type="search" name="id" placeholder="Find dlv_… evt_… ep_…" autocomplete="off" spellcheck="false";
            }
            nav aria-label="Main" {
                ul {
                    @for section in Section::ALL {
                        @if viewer.scope >= section.scope() {
                            li {
                                a href=(section.path()) aria-current=[(frame.section == Some(section)).then_some("page")] {
                                    (section.name())
                                }
                            }
                        }
                    }
                }
            }
            div.who {
                p.live #live hidden { span.dot aria-hidden="true" {} span data-live-state { "Connecting" } }
                (tenant(viewer))
                @if viewer.dev {
                    p.fineprint { "Development: no key is needed." }
                } @else {
                    p.fineprint { "Signed in with " b { (viewer.name) } ", scope " b { (viewer.scope) } "." }
                    form method="post" action="/sign-out" {
                        (parts::token(viewer))
                        button.plain type="submit" { "Sign out" }
                    }
                }
                p.fineprint { a href="/docs" { "API reference" } " · " (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
}

fn tenant(viewer: &Viewer) -> Markup {
    if !viewer.caller.any_tenant {
        return html! { p.fineprint { "Tenant " b { (viewer.tenant()) } } };
    }
    html! {
        form.tenant method="post" action="/tenant" {
            (parts::token(viewer))
            label for="chosen" { "Tenant" }
            div.joined {
                input #chosen name="chosen" value=(viewer.tenant()) autocomplete="off" spellcheck="false"
                    aria-describedby="chosen-help";
                button type="submit" { "Go" }
            }
            p #chosen-help.fineprint { code { "*" } " looks at all." }
        }
    }
}

fn notice(flash: &Flash) -> Markup {
    html! {
        div.notice.bad[flash.bad] role="status" {
            p { (flash.text) }
            @if let Some(shown) = &flash.secret {
                p.secret {
                    span { (shown.what) }
                    (parts::copyable(&shown.secret))
                }
                p.fineprint { "It is shown only now. Keep it somewhere safe." }
            }
        }
    }
}
