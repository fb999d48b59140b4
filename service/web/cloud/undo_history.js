/* Undo history: the states before the last changes. Changes of one kind in quick succession are undone together. */

const MERGE_WINDOW_MS = 800;
const MAX_STATES = 100;

export class UndoHistory {
  /** `button` is disabled while there is nothing to undo. */
  constructor(button) {
    Object.assign(this, { button, states: [], lastKind: null, lastTime: 0 });
  }

  /** Saves the state before a change, unless the change continues the last one. Each added point is a new change. */
  push(kind, state) {
    const now = performance.now();
    const continues = kind !== "add" && kind === this.lastKind && now - this.lastTime < MERGE_WINDOW_MS;
    Object.assign(this, { lastKind: kind, lastTime: now });
    if (!continues) this.states = [...this.states, state].slice(-MAX_STATES);
    this.button.disabled = false;
  }

  /** Merges the next change into the last one if it is of this kind. */
  continueWith(kind) {
    this.lastKind = kind;
  }

  /** Removes and returns the state before the last change; undefined if there is none. */
  pop() {
    const state = this.states.pop();
    this.button.disabled = this.states.length === 0;
    this.lastKind = null;
    return state;
  }
}
