package engine

import "time"

// SetDraftClock replaces the clock by which a session's drafting is measured.
func (s *Session) SetDraftClock(now func() time.Time) { s.draft.now = now }
