"""The estimators: TaciturnClassifier and TaciturnRegressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from taciturn.data.encoding import class_factors
from taciturn.data.feature_maps import NONE
from taciturn.data.schema import Schema
from taciturn.errors import InputError
from taciturn.objectives.losses import Softmax
from taciturn.sklearn.columns import refuse_unreadable
from taciturn.sklearn.declared import (
    class_numbers,
    classes_in_type_of,
    declared_class_weights,
    declared_range,
    observed_range,
    undeclared,
)
from taciturn.sklearn.linear import LinearModel
from taciturn.types import Array, Classes, Range


def _has_probabilities(model: TaciturnClassifier) -> bool:
    """Return whether the loss has a model of probabilities."""
    return model.loss == "softmax"


class TaciturnClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """Additive or linear classifier of several parties' records within a total privacy budget.

    Every fit trains with noise that makes the model differentially private for each record, or for each unit that
    `groups` names.

    Parameters
    ----------
    total_epsilon : float, default=1.0
        The total epsilon of one whole fit; `inf` trains without noise and without privacy.
    delta : float, default=1e-6
        The delta of the guarantee.
    bounds : pair, sequence of pairs, or dict, default=None
        What is known about the features without looking at the records: (low, high) of all numeric columns, a pair for
        each in order, or a pair for each by name for a data frame. Values outside are clipped, in `fit` and in
        `predict`. None only if `total_epsilon` is infinite or a schema is given.
    categories : dict, default=None
        The values that can occur in each text column of a data frame, by its name; any other value counts as
        missing. Boolean columns need none. With an infinite `total_epsilon`, columns that are left out have
        the values that occur.
    schema : Schema or path, default=None
        The schema of the data frame, as for `taciturn run`, in place of bounds, categories, classes and label_bounds.
        It also says what replaces missing values, and may name the columns of agents and units. Columns that it does
        not name are not used.
    classes : array-like, default=None
        The labels that can occur. None only if `total_epsilon` is infinite.
    total_records : int, default=None
        A round number of records that the parties agree to publish; no party may have more. None only if
        `total_epsilon` is infinite.
    features : str, default="bins"
        The public feature map. "bins": every numeric column becomes piecewise-linear features, so that the model is
        a curve for each column; "none": a linear model, with `coef_`.
    loss : {"softmax", "hinge", "squared"}, default="softmax"
        The loss; only softmax has a model of probabilities.
    penalty : {"l2", "l1"}, default="l2"
        The regulariser: the sum of squares, or of absolute values, of the coefficients of features scaled to [-1, 1]
        and of the intercept. With bins: of the parameters of scaled levels.
    alpha : float, default=1e-6
        Weight of the penalty relative to the mean loss. With bins and an infinite `total_epsilon`, a ridge chosen by
        cross-validation takes its place.
    fit_intercept : bool, default=True
        Whether the model has a constant.
    algorithm : str, default=None
        The training algorithm, as for `taciturn run`; None: the planner chooses. Some algorithms, such as "hidden",
        have only simulated noise and need a `random_state`.
    rounds : int, default=None
        Number of rounds; None: the planner chooses.
    local_updates : int, default=None
        Updates of each party per round; None: the planner chooses.
    clip : float, default=None
        Bound on the norm of one record's gradient; None: the planner chooses.
    ledger : path, default=None
        File of the ledger over studies that reserves the budget of every fit (`taciturn ledger init` creates it).
    max_records : int, default=1
        How many rows of one unit (see `fit`) at one party are used, the first ones; the noise covers all of them.
    class_weight : dict, default=None
        How much the records of each class count, such as `{"no": 1, "yes": 3}`; a class that is not named has 1, and
        only ratios matter. Probabilities are those of the weighted problem. "balanced" is refused, because the counts
        of classes are private.
    sample_weight_max : float, default=None
        The largest sample weight, known without looking at the records; larger ones are clipped. None only if
        `total_epsilon` is infinite or no `sample_weight` is given.
    random_state : int, RandomState or None, default=None
        None: the noise comes from the operating system. A number makes the fit a repeatable simulation, which
        gives no protection.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        With `features="none"`: coefficients in the units of the features; with two classes, those of the second. A
        text column has one for each category (`schema_.features` names them).
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Constants, with `features="none"`.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    privacy_spent_ : PrivacySpent
        The cost of the fit, and of all fits so far.
    ledger_ : dict
        The privacy events of the fit and their totals.
    bounds_ : ndarray of shape (n_numbers, 2) or None
        The declared bounds of the numeric columns.
    schema_ : Schema
        The rules by which the columns are encoded.
    n_iter_ : int
        Number of rounds.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the records had any.

    See Also
    --------
    TaciturnRegressor : Least squares within a privacy budget.

    Examples
    --------
    >>> import numpy as np
    >>> from taciturn.sklearn import TaciturnClassifier
    >>> X = np.linspace(-1.0, 1.0, 200).reshape(-1, 1)
    >>> y = np.where(X[:, 0] > 0.0, "high", "low")
    >>> model = TaciturnClassifier(
    ...     total_epsilon=8.0, bounds=(-1, 1), classes=["high", "low"], total_records=200, random_state=1
    ... )
    >>> model.fit(X, y).predict([[-0.9], [0.9]])
    array(['low', 'high'], dtype='<U4')
    >>> round(model.privacy_spent_.epsilon, 2)
    8.0
    """

    def __init__(
        self,
        total_epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any = None,
        categories: Any = None,
        schema: Any = None,
        classes: Any = None,
        total_records: int | None = None,
        features: str = "bins",
        loss: str = "softmax",
        penalty: str = "l2",
        alpha: float = 1e-6,
        fit_intercept: bool = True,
        algorithm: str | None = None,
        rounds: int | None = None,
        local_updates: int | None = None,
        clip: float | None = None,
        ledger: Any = None,
        max_records: int = 1,
        class_weight: Any = None,
        sample_weight_max: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.total_epsilon = total_epsilon
        self.delta = delta
        self.bounds = bounds
        self.categories = categories
        self.schema = schema
        self.classes = classes
        self.total_records = total_records
        self.features = features
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.rounds = rounds
        self.local_updates = local_updates
        self.clip = clip
        self.ledger = ledger
        self.max_records = max_records
        self.class_weight = class_weight
        self.sample_weight_max = sample_weight_max
        self.random_state = random_state

    def fit(self, X: Any, y: Any, agents: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            The records of all parties.
        y : array-like of shape (n_samples,)
            The label of each record.
        agents : array-like of shape (n_samples,), default=None
            The party that holds each record; None: a single party.
        groups : array-like of shape (n_samples,), default=None
            The person, or other unit, to which each record belongs; the noise protects whole units. None: records
            that are identical in every bit, including the label, count as one record.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each record counts, at most `sample_weight_max`. A weight must be the record's own: one that was
            computed from several records reveals them, and nothing accounts for it.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        InputError
            If the budget needs something that is not declared, or the records do not fit what is.
        BudgetExhausted
            If the fit does not fit into the ledger.

        Examples
        --------
        >>> import numpy as np
        >>> from taciturn.sklearn import TaciturnClassifier
        >>> X, y = np.linspace(0.0, 10.0, 200).reshape(-1, 1), np.repeat(["no", "yes"], 100)
        >>> model = TaciturnClassifier(total_epsilon=np.inf).fit(X, y)
        >>> model.score(X, y) > 0.95
        True
        """
        schema = self._declared_schema()
        X, y, agents, groups, weights = self._select(X, y, agents, groups, sample_weight, schema)
        records = self._read(X, y, schema)
        owners = self._owners(X, agents, groups, schema)
        y = records.y
        check_classification_targets(y)
        classes = self._classes(y, schema)
        names = Classes(tuple(map(str, classes)))
        labels, own = class_numbers(y, classes), self._class_weights(classes, schema)
        records = self._weighted(records, weights, None if own is None else class_factors(own)[labels])
        w = self._fit(records, labels, names, self.loss, owners)
        self._w = w[:, 1:] - w[:, :1] if len(classes) == 2 else w
        self.classes_ = classes
        self._forget_coefficients()
        if self.features == NONE:
            self.coef_, self.intercept_ = self._encoder_.in_user_units(self._w)
        return self

    @property
    def _intercept(self) -> bool:
        return self.fit_intercept

    def decision_function(self, X: Any) -> Array:
        """Return the score of every class; with two classes the score of the second minus the first.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            The scores; of several classes the one with the highest is predicted.

        Raises
        ------
        InputError
            If the records lack columns with which the model was fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from taciturn.sklearn import TaciturnClassifier
        >>> X, y = np.linspace(0.0, 10.0, 200).reshape(-1, 1), np.repeat(["no", "yes"], 100)
        >>> model = TaciturnClassifier(total_epsilon=np.inf).fit(X, y)
        >>> (model.decision_function([[1.0], [9.0]]) > 0.0).tolist()
        [False, True]
        """
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the highest score of each record.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Values of `classes_`.

        Raises
        ------
        InputError
            If the records lack columns with which the model was fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from taciturn.sklearn import TaciturnClassifier
        >>> X, y = np.linspace(0.0, 10.0, 200).reshape(-1, 1), np.repeat(["no", "yes"], 100)
        >>> model = TaciturnClassifier(total_epsilon=np.inf).fit(X, y)
        >>> model.predict([[1.0], [9.0]]).tolist()
        ['no', 'yes']
        """
        scores = self.decision_function(X)
        best = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class; only with `loss="softmax"`.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities; the columns are in the order of `classes_`.

        Raises
        ------
        InputError
            If the records lack columns with which the model was fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from taciturn.sklearn import TaciturnClassifier
        >>> X, y = np.linspace(0.0, 10.0, 200).reshape(-1, 1), np.repeat(["no", "yes"], 100)
        >>> model = TaciturnClassifier(total_epsilon=np.inf).fit(X, y)
        >>> model.predict_proba([[1.0], [9.0]]).argmax(axis=1).tolist()
        [0, 1]
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        return Softmax().probabilities(scores)

    def _class_weights(self, classes: NDArray[Any], schema: Schema | None) -> tuple[float, ...] | None:
        """Return the declared weight of each class, in the order of the classes."""
        given = self.class_weight
        if schema is not None and schema.class_weights and isinstance(schema.target, Classes):
            given = dict(zip(classes_in_type_of(schema.target.names, classes), schema.class_weights, strict=True))
        return declared_class_weights(given, classes)

    def _classes(self, y: NDArray[Any], schema: Schema | None) -> NDArray[Any]:
        given = self.classes
        if schema is not None:
            if not isinstance(schema.target, Classes):
                raise InputError(f"the label {schema.label} of the schema is a number: a classifier needs classes")
            given = classes_in_type_of(schema.target.names, y)
        if given is None and self._private:
            raise undeclared("classes", self.total_epsilon, "which labels occur among the records is private")
        classes = np.unique(y if given is None else np.asarray(given))
        if len(classes) < 2:
            raise InputError("there is only one class: a classifier needs at least two")
        return classes


class TaciturnRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Additive or linear least squares on several parties' records within a total privacy budget.

    Every fit trains with noise that makes the model differentially private for each record, or for each unit that
    `groups` names.

    Parameters
    ----------
    total_epsilon : float, default=1.0
        The total epsilon of one whole fit; `inf` trains without noise and without privacy.
    delta : float, default=1e-6
        The delta of the guarantee.
    bounds : pair, sequence of pairs, or dict, default=None
        What is known about the features without looking at the records: (low, high) of all numeric columns, a pair for
        each in order, or a pair for each by name for a data frame. Values outside are clipped, in `fit` and in
        `predict`. None only if `total_epsilon` is infinite or a schema is given.
    categories : dict, default=None
        The values that can occur in each text column of a data frame, by its name; any other value counts as
        missing. Boolean columns need none. With an infinite `total_epsilon`, columns that are left out have
        the values that occur.
    schema : Schema or path, default=None
        The schema of the data frame, as for `taciturn run`, in place of bounds, categories, classes and label_bounds.
        It also says what replaces missing values, and may name the columns of agents and units. Columns that it does
        not name are not used.
    label_bounds : pair, default=None
        (low, high) of y; labels outside are clipped. None only if `total_epsilon` is infinite.
    total_records : int, default=None
        A round number of records that the parties agree to publish; no party may have more. None only if
        `total_epsilon` is infinite.
    features : str, default="bins"
        The public feature map. "bins": every numeric column becomes piecewise-linear features, so that the model is
        a curve for each column; "none": a linear model, with `coef_`.
    penalty : {"l2", "l1"}, default="l2"
        The regulariser: the sum of squares, or of absolute values, of the coefficients of features scaled to [-1, 1]
        and a label scaled to [0, 1], and of the intercept. With bins: of the parameters of scaled levels.
    alpha : float, default=1e-6
        Weight of the penalty relative to half the mean squared error. With bins and an infinite `total_epsilon`, a
        ridge chosen by cross-validation takes its place.
    algorithm : str, default=None
        The training algorithm, as for `taciturn run`; None: the planner chooses. Some algorithms, such as "hidden",
        have only simulated noise and need a `random_state`.
    rounds : int, default=None
        Number of rounds; None: the planner chooses.
    local_updates : int, default=None
        Updates of each party per round; None: the planner chooses.
    clip : float, default=None
        Bound on the norm of one record's gradient; None: the planner chooses.
    ledger : path, default=None
        File of the ledger over studies that reserves the budget of every fit (`taciturn ledger init` creates it).
    max_records : int, default=1
        How many rows of one unit (see `fit`) at one party are used, the first ones; the noise covers all of them.
    sample_weight_max : float, default=None
        The largest sample weight, known without looking at the records; larger ones are clipped. None only if
        `total_epsilon` is infinite or no `sample_weight` is given.
    random_state : int, RandomState or None, default=None
        None: the noise comes from the operating system. A number makes the fit a repeatable simulation, which
        gives no protection.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        With `features="none"`: coefficients in the units of the features and the label; a text column has one for
        each category (`schema_.features` names them).
    intercept_ : float
        Constant in the unit of the label, with `features="none"`.
    privacy_spent_ : PrivacySpent
        The cost of the fit, and of all fits so far.
    ledger_ : dict
        The privacy events of the fit and their totals.
    bounds_ : ndarray of shape (n_numbers, 2) or None
        The declared bounds of the numeric columns.
    schema_ : Schema
        The rules by which the columns are encoded.
    n_iter_ : int
        Number of rounds.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the records had any.

    See Also
    --------
    TaciturnClassifier : Additive or linear classification within a privacy budget.

    Examples
    --------
    >>> import numpy as np
    >>> from taciturn.sklearn import TaciturnRegressor
    >>> X = np.linspace(0.0, 10.0, 200).reshape(-1, 1)
    >>> model = TaciturnRegressor(total_epsilon=np.inf, features="none").fit(X, 3.0 * X[:, 0] + 1.0)
    >>> np.round(model.predict([[5.0]]), 2)
    array([16.])
    """

    def __init__(
        self,
        total_epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any = None,
        categories: Any = None,
        schema: Any = None,
        label_bounds: Any = None,
        total_records: int | None = None,
        features: str = "bins",
        penalty: str = "l2",
        alpha: float = 1e-6,
        algorithm: str | None = None,
        rounds: int | None = None,
        local_updates: int | None = None,
        clip: float | None = None,
        ledger: Any = None,
        max_records: int = 1,
        sample_weight_max: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.total_epsilon = total_epsilon
        self.delta = delta
        self.bounds = bounds
        self.categories = categories
        self.schema = schema
        self.label_bounds = label_bounds
        self.total_records = total_records
        self.features = features
        self.penalty = penalty
        self.alpha = alpha
        self.algorithm = algorithm
        self.rounds = rounds
        self.local_updates = local_updates
        self.clip = clip
        self.ledger = ledger
        self.max_records = max_records
        self.sample_weight_max = sample_weight_max
        self.random_state = random_state

    def fit(self, X: Any, y: Any, agents: Any = None, groups: Any = None, sample_weight: Any = None) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            The records of all parties.
        y : array-like of shape (n_samples,)
            The value of each record.
        agents : array-like of shape (n_samples,), default=None
            The party that holds each record; None: a single party.
        groups : array-like of shape (n_samples,), default=None
            The person, or other unit, to which each record belongs; the noise protects whole units. None: records
            that are identical in every bit, including the label, count as one record.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each record counts, at most `sample_weight_max`. A weight must be the record's own: one that was
            computed from several records reveals them, and nothing accounts for it.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        InputError
            If the budget needs something that is not declared, or the records do not fit what is.
        BudgetExhausted
            If the fit does not fit into the ledger.

        Examples
        --------
        >>> import numpy as np
        >>> from taciturn.sklearn import TaciturnRegressor
        >>> X = np.linspace(0.0, 10.0, 200).reshape(-1, 1)
        >>> model = TaciturnRegressor(total_epsilon=np.inf, features="none").fit(X, 3.0 * X[:, 0] + 1.0)
        >>> bool(model.score(X, 3.0 * X[:, 0] + 1.0) > 0.99)
        True
        """
        schema = self._declared_schema()
        refuse_unreadable("y", y, 1)
        X, y, agents, groups, weights = self._select(X, y, agents, groups, sample_weight, schema)
        records = self._read(X, y, schema, y_numeric=True)
        owners = self._owners(X, agents, groups, schema)
        values = records.y.astype(np.float64)
        target = self._range(values, schema)
        records = self._weighted(records, weights)
        self._w, self._target = self._fit(records, values, target, "squared", owners), target
        self._forget_coefficients()
        if self.features == NONE:
            slopes, constants = self._encoder_.in_user_units((target.high - target.low) * self._w)
            self.coef_, self.intercept_ = slopes[0], target.low + float(constants[0])
        return self

    def predict(self, X: Any) -> Array:
        """Return the prediction of each record.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbers in the unit of the label, within its bounds.

        Raises
        ------
        InputError
            If the records lack columns with which the model was fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from taciturn.sklearn import TaciturnRegressor
        >>> X = np.linspace(0.0, 10.0, 200).reshape(-1, 1)
        >>> model = TaciturnRegressor(total_epsilon=np.inf, features="none").fit(X, 3.0 * X[:, 0] + 1.0)
        >>> np.round(model.predict([[5.0]]), 2).tolist()
        [16.0]
        """
        scores = self._scores(X)[:, 0]
        return self._target.predicted(scores)

    def _range(self, y: NDArray[np.float64], schema: Schema | None) -> Range:
        if schema is not None:
            if not isinstance(schema.target, Range):
                raise InputError(f"the label {schema.label} of the schema is a class: a regressor needs a number")
            return schema.target
        if self.label_bounds is not None:
            return declared_range(self.label_bounds)
        if self._private:
            raise undeclared("label_bounds", self.total_epsilon, "a range taken from the labels would reveal them")
        return observed_range(y)
